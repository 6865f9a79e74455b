//! `compressed-tensors`: packed integers, integers with zero points, and packed 4-bit floats.

use super::gptq::column_groups;
use super::group_codes::{GroupCodes, Groups, Zeros, field};
use super::module::{Module, TensorRole, expect};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::TensorInfo;
use crate::memory::reserve;
use crate::quant::nvfp4;
use crate::weight::{Data, Scaling, Weight, f32_bytes, floats, known, shape};

/// Elements that share a scale in `nvfp4-pack-quantized` and `mxfp4-pack-quantized`.
const NVFP4_GROUP: u64 = 16;
const MXFP4_GROUP: u64 = 32;

/// Builds the weight of a module with packed rows.
///
/// # Errors
///
/// `Format` for a missing tensor and for tensors that contradict each other; those of [`GroupCodes::weight`].
pub(super) fn weight(module: &Module<'_>) -> Result<Weight> {
    let (_, packed) = module.required(TensorRole::PackedRows)?;
    match packed.dtype.name() {
        "i32" => integers(module),
        "u8" if module.find(TensorRole::GlobalScale).is_some() => nvfp4(module),
        "u8" => mxfp4(module),
        other => bail!(
            Format,
            "tensor {} is {other}, expected i32 or u8",
            packed.name
        ),
    }
}

/// Builds a weight of integers of up to 8 bits, as consecutive fields of 32-bit words.
fn integers(module: &Module<'_>) -> Result<Weight> {
    let file = module.file;
    let (index, packed) = module.required(TensorRole::PackedRows)?;
    let (_, stored) = module.required(TensorRole::Shape)?;
    let [rows, cols] = stored_shape(module, stored)?;
    let word_bits = packed.cols().saturating_mul(32);
    let bits = word_bits.checked_div(cols).unwrap_or(0);
    expect(packed, &["i32"], &[packed.cols(), rows])?;
    let fits = (1..=8).find(|n| u64::from(*n) == bits && bits.saturating_mul(cols) == word_bits);
    let Some(bits) = fits else {
        bail!(
            Unsupported,
            "tensor {} has rows of {} words for {cols} columns, expected a whole number of bits, 2 to 8",
            packed.name,
            packed.cols()
        );
    };
    let [rows, cols] = sizes(packed, [rows, cols])?;
    GroupCodes {
        file,
        name: module.matrix.to_string(),
        bits,
        rows,
        cols,
        codes: Data::in_place(index),
        groups: groups(module, [rows, cols], bits)?,
    }
    .weight()
}

/// Reads rows and columns.
fn stored_shape(module: &Module<'_>, tensor: &TensorInfo) -> Result<[u64; 2]> {
    let bytes = module.file.bytes(tensor);
    let all: Option<Vec<u64>> = match tensor.dtype.known() {
        Some(DType::I64) => {
            let numbers = bytes.as_chunks().0.iter();
            numbers
                .map(|n| u64::try_from(i64::from_le_bytes(*n)).ok())
                .collect()
        }
        Some(DType::I32) => {
            let numbers = bytes.as_chunks().0.iter();
            numbers
                .map(|n| u64::try_from(i32::from_le_bytes(*n)).ok())
                .collect()
        }
        _ => None,
    };
    match all.as_deref() {
        Some([rows, cols]) => Ok([*rows, *cols]),
        _ => bail!(
            Format,
            "tensor {} is {} {:?}, expected rows and columns as i64 or i32",
            tensor.name,
            tensor.dtype,
            all.unwrap_or_default()
        ),
    }
}

fn sizes(tensor: &TensorInfo, sizes: [u64; 2]) -> Result<[u32; 2]> {
    match sizes.map(u32::try_from) {
        [Ok(rows), Ok(cols)] => Ok([rows, cols]),
        _ => bail!(
            Unsupported,
            "tensor {}: {} rows of {} columns, which do not fit 32 bits",
            tensor.name,
            sizes[0],
            sizes[1]
        ),
    }
}

/// Builds a weight of bytes with zero points.
///
/// # Errors
///
/// `Format` for tensors that contradict each other, `Unsupported` for zero points of floats.
pub(super) fn bytes_with_zeros(module: &Module<'_>) -> Result<Weight> {
    let file = module.file;
    let (index, stored) = module.required(TensorRole::Weight)?;
    let [rows, cols] = shape(stored)?;
    if stored.dtype.known() != Some(DType::I8) {
        let (_, zeros) = module.required(TensorRole::ZeroPoint)?;
        bail!(
            Unsupported,
            "tensor {} is {} with zero points {}, expected i8",
            stored.name,
            stored.dtype,
            zeros.name
        );
    }
    expect(stored, &["i8"], &[cols.into(), rows.into()])?;
    let signed = file.bytes(stored);
    let mut codes = reserve(&stored.name, DType::Affine8, signed.len() as u64)?;
    codes.extend(signed.iter().map(|byte| byte ^ 0x80));
    GroupCodes {
        file,
        name: module.matrix.to_string(),
        bits: 8,
        rows,
        cols,
        codes: Data::computed(index, codes),
        groups: groups(module, [rows, cols], 8)?,
    }
    .weight()
}

/// Reads scales and zero points. A scale is that of the matrix, of a row, or of a group of columns.
fn groups(module: &Module<'_>, [rows, cols]: [u32; 2], bits: u32) -> Result<Groups> {
    let (tensor, stored) = module.required(TensorRole::Scale)?;
    let count = match *stored.dims {
        [] | [1] => 1,
        [n] if n == u64::from(rows) => 1,
        [1, 1] => 1,
        [count, n] if n == u64::from(rows) && count > 0 => count,
        _ => bail!(
            Format,
            "tensor {}: shape {:?}, expected scales of the matrix, of {rows} rows or of groups",
            stored.name,
            stored.dims.iter().rev().collect::<Vec<_>>()
        ),
    };
    let width = u64::from(cols) / count;
    if width * count != u64::from(cols) {
        bail!(
            Format,
            "tensor {}: {count} groups of {cols} columns, expected groups of equal size",
            stored.name
        );
    }
    let [count, width] = [count, width].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let mut scales = floats(module.file, stored)?;
    let scale_count = scales.len();
    if scale_count < rows as usize * count {
        scales = scales.repeat(rows as usize);
    }
    let order = module.find(TensorRole::WeightGroups);
    let order = order.map(|(_, tensor)| column_groups(module, tensor, cols, count));
    Ok(Groups {
        tensor,
        float: known(stored)?,
        zeros: match module.find(TensorRole::ZeroPoint) {
            None => Zeros::All(1 << (bits - 1)),
            Some((_, zeros)) => {
                self::zeros(module, zeros, [rows as usize, count], bits, scale_count)?
            }
        },
        scales,
        width,
        order: order.transpose()?,
    })
}

/// Reads zero points: bytes with a sign, as many as scales, or fields of 32-bit words for every row and group. Codes and zero points are
/// returned without a sign.
fn zeros(
    module: &Module<'_>,
    tensor: &TensorInfo,
    [rows, count]: [usize; 2],
    bits: u32,
    scale_count: usize,
) -> Result<Zeros> {
    let stored = module.file.bytes(tensor);
    let middle = 1 << (bits - 1);
    if tensor.dtype.name() == "i8" {
        let signed = |byte: &u8| (i16::from(byte.cast_signed()) + middle).cast_unsigned();
        if stored.len() != scale_count {
            bail!(
                Format,
                "tensor {} has {} elements, expected {scale_count}",
                tensor.name,
                stored.len()
            );
        }
        let mut zeros: Vec<u16> = stored.iter().map(signed).collect();
        if scale_count < rows * count {
            zeros = zeros.repeat(rows);
        }
        return Ok(Zeros::of(zeros));
    }
    let words = (rows as u64 * u64::from(bits)).div_ceil(32);
    expect(tensor, &["i32", "i8"], &[count as u64, words])?;
    let words: &[[u8; 4]] = stored.as_chunks().0;
    let stream = |group: usize| words.iter().skip(group).step_by(count).flatten().copied();
    let streams: Vec<Vec<u8>> = (0..count).map(|group| stream(group).collect()).collect();
    let of_row = |row: usize| streams.iter().map(move |s| field(s, row, bits));
    Ok(Zeros::of((0..rows).flat_map(of_row).collect()))
}

/// Checks the tensors of packed 4-bit floats. Returns rows and columns.
fn fp4_sizes(module: &Module<'_>, scale_type: &str, group: u64) -> Result<[u32; 2]> {
    let (_, packed) = module.required(TensorRole::PackedRows)?;
    let (_, scales) = module.required(TensorRole::Scale)?;
    let (rows, cols) = (packed.rows(), packed.cols().saturating_mul(2));
    expect(packed, &["u8"], &[cols / 2, rows])?;
    expect(scales, &[scale_type], &[cols.div_ceil(group), rows])?;
    if let Some((_, zeros)) = module.find(TensorRole::ZeroPoint) {
        bail!(
            Unsupported,
            "tensor {}: zero points of 4-bit floats",
            zeros.name
        );
    }
    sizes(packed, [rows, cols])
}

/// Builds a weight of 4-bit floats with a power of two per 32 columns.
fn mxfp4(module: &Module<'_>) -> Result<Weight> {
    let [rows, cols] = fp4_sizes(module, "u8", MXFP4_GROUP)?;
    let (index, packed) = module.required(TensorRole::PackedRows)?;
    let (scales, _) = module.required(TensorRole::Scale)?;
    if !u64::from(cols).is_multiple_of(MXFP4_GROUP) {
        bail!(
            Unsupported,
            "tensor {}: rows of {cols} columns, expected a multiple of {MXFP4_GROUP}",
            packed.name
        );
    }
    Ok(Weight {
        name: module.matrix.to_string(),
        dtype: DType::E2m1,
        rows,
        cols,
        stack: 1,
        codes: Data::in_place(index),
        scales: Some(Scaling {
            float: DType::E8m0,
            scales: Data::in_place(scales),
            biases: None,
            group: [1, 32],
        }),
    })
}

/// Builds a weight of 4-bit floats with a scale per 16 columns and a divisor of the scales, as blocks of
/// `NVFP4` with a scale of the matrix.
fn nvfp4(module: &Module<'_>) -> Result<Weight> {
    let file = module.file;
    let [rows, cols] = fp4_sizes(module, DType::E4m3.name(), NVFP4_GROUP)?;
    let (index, packed) = module.required(TensorRole::PackedRows)?;
    let (_, scales) = module.required(TensorRole::Scale)?;
    let (global, stored) = module.required(TensorRole::GlobalScale)?;
    let divisor = match floats(file, stored)?[..] {
        [divisor] if divisor > 0.0 && divisor.is_finite() => divisor,
        ref others => bail!(
            Format,
            "tensor {} is {others:?}, expected one positive number",
            stored.name
        ),
    };
    if !(cols as usize).is_multiple_of(nvfp4::ELEMENTS) {
        bail!(
            Unsupported,
            "tensor {}: rows of {cols} columns, expected a multiple of {}",
            packed.name,
            nvfp4::ELEMENTS
        );
    }
    let scale_bytes = file.bytes(scales);
    if let Some(at) = scale_bytes.iter().position(|byte| *byte >= 0x7f) {
        bail!(
            Unsupported,
            "tensor {}: scale {at} is negative or not a number (byte {:#04x})",
            scales.name,
            scale_bytes[at]
        );
    }
    let len = DType::Nvfp4.bytes(packed.elements().saturating_mul(2));
    let mut blocks = reserve(&packed.name, DType::Nvfp4, len.unwrap_or(u64::MAX))?;
    let scales = scale_bytes.as_chunks::<4>().0;
    let pairs = file.bytes(packed).as_chunks::<32>().0;
    for (scales, pairs) in scales.iter().zip(pairs) {
        blocks.extend_from_slice(&nvfp4::pack(*scales, pairs));
    }
    Ok(Weight {
        name: module.matrix.to_string(),
        dtype: DType::Nvfp4,
        rows,
        cols,
        stack: 1,
        codes: Data::computed(index, blocks),
        scales: Some(Scaling {
            float: DType::F32,
            scales: Data::computed(global, f32_bytes(&[divisor.recip()])),
            biases: None,
            group: [rows, cols].map(|n| n.max(1) as usize),
        }),
    })
}
