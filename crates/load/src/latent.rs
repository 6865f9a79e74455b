//! Weights of multi-head latent attention, whose form differs between files.

use super::weight::{Data, Weight, f32_bytes};
use crate::arch::{AttentionConfig, Latent};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::Directory;
use crate::quant::{self, Matrix};

/// Matrix whose rows are, for each head, those of its keys, then those of its values.
const FUSED: &str = ".attn_kv_b.weight";
/// Matrices of the keys of all heads, transposed, and of their values.
const PARTS: [&str; 2] = [".attn_k_b.weight", ".attn_v_b.weight"];

/// Returns whether a weight is the matrix of keys and values.
pub(super) fn is_fused(weight: &Weight) -> bool {
    weight.name.ends_with(FUSED)
}

/// Splits the matrix of keys and values into a stack of transposed key matrices and a stack of value matrices, as in
/// recent GGUF files. A quantized matrix of keys is decoded, because it cannot be transposed.
///
/// # Errors
///
/// `Format` for a wrong number of rows, `Unsupported` for a type that cannot be split.
pub(super) fn split(
    weights: Vec<Weight>,
    attention: &AttentionConfig,
    file: &Directory,
) -> Result<Vec<Weight>> {
    let Some(Latent { plain, value, .. }) = attention.latent else {
        return Ok(weights);
    };
    let heads = attention.heads;
    let head = plain + value;
    let mut split = Vec::with_capacity(weights.len());
    for weight in weights {
        let Some(layer) = weight.name.strip_suffix(FUSED) else {
            split.push(weight);
            continue;
        };
        if u64::from(weight.rows) != u64::from(heads) * u64::from(head) {
            bail!(
                Format,
                "tensor {} has {} rows, expected {plain} of keys and {value} of values for each of {heads} heads",
                weight.tensor(file),
                weight.rows
            );
        }
        let [keys, values] = PARTS.map(|part| format!("{layer}{part}"));
        let rows = |from: u32, to: u32| (0..heads).map(move |h| h * head + from..h * head + to);
        let keys = weight.gathered(&keys, rows(0, plain), file)?;
        let keys = Weight {
            stack: heads,
            ..decoded(keys, file)
        };
        split.push(keys.transposed(file)?);
        split.push(Weight {
            stack: heads,
            ..weight.gathered(&values, rows(plain, head), file)?
        });
    }
    Ok(split)
}

/// Returns a quantized matrix in F32, which is exact; other matrices as they are.
fn decoded(weight: Weight, file: &Directory) -> Weight {
    if weight.dtype.facts().block == 1 && weight.scales.is_none() {
        return weight;
    }
    let [rows, cols] = [weight.rows, weight.cols].map(|n| n as usize);
    let matrix = Matrix {
        bytes: weight.codes.bytes(file),
        scales: weight.scales(file),
        rows,
        cols,
    };
    let mut all = vec![0.0; rows * cols];
    for (row, out) in all.chunks_exact_mut(cols).enumerate() {
        quant::decode_row_of(weight.dtype, &matrix, row, out);
    }
    Weight {
        dtype: DType::F32,
        codes: Data::computed(weight.codes.tensor, f32_bytes(&all)),
        scales: None,
        ..weight
    }
}
