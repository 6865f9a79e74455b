//! `bitsandbytes`: 4-bit indices into a table of floats, and bytes with a scale per row.
//!
//! No other type has these tables, so matrices are decoded to the type that the file states, as the library does
//! before each product: an entry of the table times the largest magnitude of its block, rounded once.

use super::config::shown;
use super::module::{Module, TensorRole, expect};
use crate::dtype::DType;
use crate::error::{Context, Result, bail};
use crate::memory::reserve;
use crate::quant::encode_row;
use crate::weight::{Data, Scaling, Weight, f32_bytes, floats, shape};
use serde_json::Value;

/// Types of decoded matrices.
const TYPES: [(&str, DType); 3] = [
    ("float16", DType::F16),
    ("bfloat16", DType::Bf16),
    ("float32", DType::F32),
];

/// Number of values of 4-bit and of 8-bit codes.
const CODES: u64 = 16;
const NESTED_CODES: u64 = 256;

/// Elements that are decoded together.
const PART: usize = 1 << 12;

/// Largest magnitude of bytes.
const BYTE_MAX: f32 = 127.0;

/// Settings of a matrix, from the JSON text of its file.
struct QuantState {
    rows: u32,
    cols: u32,
    block: usize,
    dtype: DType,
    nested: Option<Nested>,
}

/// Settings of largest magnitudes that are codes.
struct Nested {
    block: usize,
    offset: f32,
}

/// Builds the weight of a module with 4-bit codes.
///
/// # Errors
///
/// `Format` for a missing tensor and for tensors that contradict each other, `Memory` if the decoded matrix does
/// not fit into free memory.
pub(super) fn weight_of_4_bits(module: &Module<'_>) -> Result<Weight> {
    let file = module.file;
    let (index, codes) = module.required(TensorRole::Weight)?;
    let state = quant_state(module)?;
    let elements = u64::from(state.rows) * u64::from(state.cols);
    expect(codes, &["u8"], &[1, elements.div_ceil(2)])?;
    let (_, map) = module.required(TensorRole::QuantMap)?;
    expect(map, &["f32"], &[CODES])?;
    let values = floats(file, map)?;
    let maxima = maxima(module, &state, elements.div_ceil(state.block as u64))?;
    let Some(bytes) = state.dtype.bytes(elements) else {
        bail!(TooLarge, "tensor {}: {elements} elements", codes.name);
    };
    let mut decoded = reserve(&codes.name, state.dtype, bytes)?;
    let pairs = file.bytes(codes);
    let elements = state.rows as usize * state.cols as usize;
    let mut part = Vec::with_capacity(PART);
    for first in (0..elements).step_by(PART) {
        let all = first..elements.min(first + PART);
        part.extend(all.map(|i| {
            // The first element of a pair is in the high nibble.
            let code = pairs[i / 2] >> (4 * (1 - i % 2)) & 15;
            values[usize::from(code)] * maxima[i / state.block]
        }));
        encode_row(state.dtype, &part, &mut decoded);
        part.clear();
    }
    Ok(Weight {
        name: module.matrix.to_string(),
        dtype: state.dtype,
        rows: state.rows,
        cols: state.cols,
        stack: 1,
        codes: Data::computed(index, decoded),
        scales: None,
    })
}

/// Reads the settings of a matrix.
fn quant_state(module: &Module<'_>) -> Result<QuantState> {
    let (_, tensor) = module.required(TensorRole::QuantState)?;
    expect(tensor, &["u8"], &[tensor.bytes])?;
    let name = format!("tensor {}", tensor.name);
    let json: Value = match serde_json::from_slice(module.file.bytes(tensor)) {
        Ok(json) => json,
        Err(e) => bail!(Format, "{name}: invalid JSON: {e}"),
    };
    let count = |key: &str| {
        let value = json.get(key).and_then(Value::as_u64);
        match value.and_then(|n| usize::try_from(n).ok()) {
            Some(n) if n > 0 => Ok(n),
            _ => invalid(&json, key, "a positive integer"),
        }
    };
    let size = |i: usize| {
        let value = json.get("shape").and_then(|shape| shape.get(i)?.as_u64());
        value.and_then(|n| u32::try_from(n).ok())
    };
    let own = json.get("dtype").and_then(Value::as_str);
    let dtype = TYPES.iter().find(|(name, _)| own == Some(*name));
    let read = || {
        let dimensions = json.get("shape").and_then(Value::as_array).map(Vec::len);
        let (Some(rows), Some(cols), Some(2)) = (size(0), size(1), dimensions) else {
            return invalid(&json, "shape", "rows and columns");
        };
        let Some((_, dtype)) = dtype else {
            return invalid(&json, "dtype", "float16, bfloat16 or float32");
        };
        let nested = match module.find(TensorRole::NestedAbsmax) {
            None => None,
            Some(_) => Some(Nested {
                block: count("nested_blocksize")?,
                offset: match json.get("nested_offset").and_then(Value::as_f64) {
                    Some(offset) => narrow(offset),
                    None => return invalid(&json, "nested_offset", "a number"),
                },
            }),
        };
        Ok(QuantState {
            rows,
            cols,
            block: count("blocksize")?,
            dtype: *dtype,
            nested,
        })
    };
    read().context(name)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "an f32 that the library wrote as f64"
)]
fn narrow(x: f64) -> f32 {
    x as f32
}

fn invalid<T>(json: &Value, key: &str, expected: &str) -> Result<T> {
    let found = json.get(key).unwrap_or(&Value::Null);
    bail!(Format, "{key}: expected {expected}, got {}", shown(found));
}

/// Returns the largest magnitude of each block.
fn maxima(module: &Module<'_>, state: &QuantState, count: u64) -> Result<Vec<f32>> {
    let file = module.file;
    let (_, tensor) = module.required(TensorRole::Absmax)?;
    let Some(nested) = &state.nested else {
        expect(tensor, &["f32"], &[count])?;
        return floats(file, tensor);
    };
    expect(tensor, &["u8"], &[count])?;
    let (_, outer) = module.required(TensorRole::NestedAbsmax)?;
    expect(outer, &["f32"], &[count.div_ceil(nested.block as u64)])?;
    let (_, map) = module.required(TensorRole::NestedQuantMap)?;
    expect(map, &["f32"], &[NESTED_CODES])?;
    let (values, outer) = (floats(file, map)?, floats(file, outer)?);
    let codes = file.bytes(tensor).iter().enumerate();
    let maximum = |(i, code): (usize, &u8)| {
        values[usize::from(*code)] * outer[i / nested.block] + nested.offset
    };
    Ok(codes.map(maximum).collect())
}

/// Builds the weight of a module with bytes and the largest magnitude of each row.
///
/// # Errors
///
/// `Format` for tensors that contradict each other, `Unsupported` for a layout other than rows.
pub(super) fn weight_of_8_bits(module: &Module<'_>) -> Result<Weight> {
    let file = module.file;
    let (index, codes) = module.required(TensorRole::Weight)?;
    let (tensor, maxima) = module.required(TensorRole::RowMaxima)?;
    let [rows, cols] = shape(codes)?;
    expect(codes, &["i8"], &[cols.into(), rows.into()])?;
    expect(maxima, &["f32"], &[rows.into()])?;
    if let Some((_, format)) = module.find(TensorRole::WeightFormat)
        && file.bytes(format).iter().any(|byte| *byte != 0)
    {
        bail!(
            Unsupported,
            "tensor {}: unsupported layout {:?}, expected 0 (rows)",
            format.name,
            file.bytes(format)
        );
    }
    let scales: Vec<f32> = floats(file, maxima)?.iter().map(|m| m / BYTE_MAX).collect();
    Ok(Weight {
        name: module.matrix.to_string(),
        dtype: DType::I8,
        rows,
        cols,
        stack: 1,
        codes: Data::in_place(index),
        scales: Some(Scaling {
            float: DType::F32,
            scales: Data::computed(tensor, f32_bytes(&scales)),
            biases: None,
            group: [1, (cols as usize).max(1)],
        }),
    })
}
