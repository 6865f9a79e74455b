//! GPTQ and AWQ: codes and zero points in 32-bit words, a scale per group of inputs. Matrices are stored as
//! `[inputs, outputs]`.

use super::group_codes::{GroupCodes, Groups, Zeros, field};
use super::module::{Module, TensorRole, expect};
use super::quantization::{Gptq, Packing};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::TensorInfo;
use crate::memory::reserve;
use crate::weight::{Data, Weight, floats, known};

/// Types of scales.
const FLOATS: [&str; 3] = ["f16", "bf16", "f32"];

/// Bits of the codes of AWQ.
const AWQ_BITS: u8 = 4;

/// Codes per 32-bit word of AWQ.
const AWQ_CODES: usize = 8;

/// Output of each code of an AWQ word, from the lowest bits on.
const AWQ_ORDER: [usize; AWQ_CODES] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Sizes of a matrix.
struct Sizes {
    bits: u32,
    rows: u32,
    cols: u32,
    groups: usize,
    /// Columns per group.
    width: usize,
}

/// Builds the weight of a module with packed columns.
///
/// # Errors
///
/// `Format` for a missing tensor, for tensors that contradict each other or the configuration; those of
/// [`GroupCodes::weight`].
pub(super) fn weight(module: &Module<'_>, packing: Option<&Packing>) -> Result<Weight> {
    let (_, codes) = module.required(TensorRole::PackedColumns)?;
    match packing {
        Some(Packing::Gptq(gptq)) => gptq_weight(module, gptq),
        Some(Packing::Awq { group }) => awq_weight(module, *group),
        None => bail!(
            Format,
            "tensor {}: quantization_config.quant_method is not \"gptq\" or \"awq\"",
            codes.name
        ),
    }
}

fn gptq_weight(module: &Module<'_>, config: &Gptq) -> Result<Weight> {
    let sizes = gptq_sizes(module, config)?;
    let (index, codes) = module.required(TensorRole::PackedColumns)?;
    let (_, zeros) = module.required(TensorRole::PackedZeros)?;
    let order = match module.find(TensorRole::ColumnGroups) {
        None if config.act_order => {
            module.required(TensorRole::ColumnGroups)?;
            None
        }
        None => None,
        Some((_, tensor)) => Some(column_groups(module, tensor, sizes.cols, sizes.groups)?),
    };
    let file = module.file;
    let words = file.bytes(codes).as_chunks().0;
    let transposed = transposed_words(&codes.name, words, sizes.rows as usize)?;
    // A zero point of one row of words per group.
    let stream = file.bytes(zeros);
    let row = stream.len() / sizes.groups;
    let mask = (1 << sizes.bits) - 1;
    let zero = |row_of: usize, group: usize| {
        let stored = field(&stream[group * row..][..row], row_of, sizes.bits);
        (stored + config.zero_offset) & mask
    };
    let groups = groups(module, &sizes, order, zero)?;
    GroupCodes {
        file,
        name: module.matrix.to_string(),
        bits: sizes.bits,
        rows: sizes.rows,
        cols: sizes.cols,
        codes: Data::computed(index, transposed),
        groups,
    }
    .weight()
}

/// Derives the sizes from the tensors: the number of bits may differ by module.
fn gptq_sizes(module: &Module<'_>, config: &Gptq) -> Result<Sizes> {
    let (_, codes) = module.required(TensorRole::PackedColumns)?;
    let (_, zeros) = module.required(TensorRole::PackedZeros)?;
    let (rows, zero_bits) = (codes.cols(), zeros.cols().saturating_mul(32));
    let bits = zero_bits.checked_div(rows).unwrap_or(0);
    let code_bits = codes.rows().saturating_mul(32);
    let whole = rows > 0 && zero_bits == bits.saturating_mul(rows) && [2, 3, 4, 8].contains(&bits);
    let known = config.bits.is_none_or(|own| own == bits);
    if !whole || !known || !code_bits.is_multiple_of(bits) {
        bail!(
            Format,
            "tensor {} has {} columns for {rows} outputs and tensor {} has {} rows, expected codes of {} bits",
            zeros.name,
            zeros.cols(),
            codes.name,
            codes.rows(),
            config
                .bits
                .map_or("2, 3, 4 or 8".to_string(), |bits| bits.to_string())
        );
    }
    let cols = code_bits / bits;
    let groups = zeros.rows();
    expect(codes, &["i32", "u32"], &[rows, code_bits / 32])?;
    expect(zeros, &["i32", "u32"], &[zero_bits / 32, groups])?;
    sizes(codes, bits, [rows, cols], groups, config.group)
}

/// Checks the sizes of a matrix and of its groups.
fn sizes(
    codes: &TensorInfo,
    bits: u64,
    [rows, cols]: [u64; 2],
    groups: u64,
    width: Option<u64>,
) -> Result<Sizes> {
    let own = cols.checked_div(groups).unwrap_or(0);
    let width = match width {
        Some(width) if groups > 1 => width,
        _ => own,
    };
    let fits = groups > 0 && width > 0 && cols.div_ceil(width.max(1)) == groups;
    let all = (
        u32::try_from(bits).ok(),
        u32::try_from(rows).ok(),
        u32::try_from(cols).ok(),
        usize::try_from(groups).ok(),
        usize::try_from(width).ok(),
    );
    match all {
        (Some(bits), Some(rows), Some(cols), Some(groups), Some(width)) if fits => Ok(Sizes {
            bits,
            rows,
            cols,
            groups,
            width,
        }),
        _ => bail!(
            Format,
            "tensor {}: {rows} rows of {cols} columns have {groups} groups, expected groups of {width} columns",
            codes.name
        ),
    }
}

/// Reads the scales, `[groups, outputs]`, and the zero point of each row and group.
fn groups(
    module: &Module<'_>,
    sizes: &Sizes,
    order: Option<Vec<u32>>,
    zero: impl Fn(usize, usize) -> u16,
) -> Result<Groups> {
    let (tensor, stored) = module.required(TensorRole::Scales)?;
    let (rows, count) = (sizes.rows as usize, sizes.groups);
    expect(stored, &FLOATS, &[rows as u64, count as u64])?;
    let by_group = floats(module.file, stored)?;
    let each = || (0..rows).flat_map(|row| (0..count).map(move |group| (row, group)));
    let zeros: Vec<u16> = each().map(|(row, group)| zero(row, group)).collect();
    Ok(Groups {
        tensor,
        float: known(stored)?,
        scales: each()
            .map(|(row, group)| by_group[group * rows + row])
            .collect(),
        zeros: Zeros::of(zeros),
        width: sizes.width,
        order,
    })
}

/// Reads the group of each column.
///
/// # Errors
///
/// `Format` for another length and a group that does not exist.
pub(super) fn column_groups(
    module: &Module<'_>,
    tensor: &TensorInfo,
    cols: u32,
    groups: usize,
) -> Result<Vec<u32>> {
    expect(tensor, &["i32"], &[cols.into()])?;
    let stored = module.file.bytes(tensor).as_chunks().0.iter();
    let of_column = |(col, bytes): (usize, &[u8; 4])| {
        let group = i32::from_le_bytes(*bytes);
        match u32::try_from(group) {
            Ok(known) if (known as usize) < groups => Ok(known),
            _ => bail!(
                Format,
                "tensor {}: column {col} is in group {group}, expected 0 to {}",
                tensor.name,
                groups.saturating_sub(1)
            ),
        }
    };
    stored.enumerate().map(of_column).collect()
}

/// Transposes 32-bit words, in tiles that fit into the cache.
fn transposed_words(tensor: &str, words: &[[u8; 4]], cols: usize) -> Result<Vec<u8>> {
    const TILE: usize = 16;
    let rows = words.len() / cols.max(1);
    let bytes = words.len() as u64 * 4;
    let mut transposed = reserve(tensor, DType::I32, bytes)?;
    transposed.resize(words.len() * 4, 0);
    let to = transposed.as_chunks_mut().0;
    for first_row in (0..rows).step_by(TILE) {
        for first_col in (0..cols).step_by(TILE) {
            for row in first_row..rows.min(first_row + TILE) {
                for col in first_col..cols.min(first_col + TILE) {
                    to[col * rows + row] = words[row * cols + col];
                }
            }
        }
    }
    Ok(transposed)
}

fn awq_weight(module: &Module<'_>, group: Option<u64>) -> Result<Weight> {
    let (index, codes) = module.required(TensorRole::PackedColumns)?;
    let (_, zeros) = module.required(TensorRole::PackedZeros)?;
    let (words, cols) = (codes.cols(), codes.rows());
    expect(codes, &["i32", "u32"], &[words, cols])?;
    expect(zeros, &["i32", "u32"], &[words, zeros.rows()])?;
    let rows = words.saturating_mul(AWQ_CODES as u64);
    let sizes = sizes(codes, AWQ_BITS.into(), [rows, cols], zeros.rows(), group)?;
    let file = module.file;
    let packed = awq_rows(&codes.name, file.bytes(codes), &sizes)?;
    let stored: &[[u8; 4]] = file.bytes(zeros).as_chunks().0;
    let words = sizes.rows as usize / AWQ_CODES;
    let zero = |row: usize, group: usize| {
        let word = u32::from_le_bytes(stored[group * words + row / AWQ_CODES]);
        (word >> (4 * awq_field(row % AWQ_CODES)) & 15) as u16
    };
    let groups = groups(module, &sizes, None, zero)?;
    GroupCodes {
        file,
        name: module.matrix.to_string(),
        bits: AWQ_BITS.into(),
        rows: sizes.rows,
        cols: sizes.cols,
        codes: Data::computed(index, packed),
        groups,
    }
    .weight()
}

/// Returns the field of a word that has the code of an output.
fn awq_field(output: usize) -> usize {
    AWQ_ORDER.iter().position(|n| *n == output).unwrap_or(0)
}

/// Returns the codes of each output as consecutive nibbles.
fn awq_rows(tensor: &str, stored: &[u8], sizes: &Sizes) -> Result<Vec<u8>> {
    let (words, cols) = (sizes.rows as usize / AWQ_CODES, sizes.cols as usize);
    let stored: &[[u8; 4]] = stored.as_chunks().0;
    if !cols.is_multiple_of(AWQ_CODES) {
        bail!(
            Unsupported,
            "tensor {tensor}: {cols} inputs, expected a multiple of {AWQ_CODES}"
        );
    }
    let mut packed = reserve(tensor, DType::Affine4, stored.len() as u64 * 4)?;
    packed.resize(stored.len() * 4, 0);
    let to: &mut [[u8; 4]] = packed.as_chunks_mut().0;
    for block in 0..cols / AWQ_CODES {
        for word in 0..words {
            // Eight inputs of eight outputs, transposed.
            let mut outputs = [0u32; AWQ_CODES];
            for input in 0..AWQ_CODES {
                let codes = u32::from_le_bytes(stored[(block * AWQ_CODES + input) * words + word]);
                for (field, output) in AWQ_ORDER.into_iter().enumerate() {
                    outputs[output] |= (codes >> (4 * field) & 15) << (4 * input);
                }
            }
            for (output, codes) in outputs.into_iter().enumerate() {
                let row = word * AWQ_CODES + output;
                to[row * (cols / AWQ_CODES) + block] = codes.to_le_bytes();
            }
        }
    }
    Ok(packed)
}
