//! Encodes weights while loading: the output projection (`lm_head`), which is half of the weights that a
//! token of a small model reads, and weights with merged adapters.

use super::adapter::Merge;
use super::memory::reserve;
use super::rows::{Rows, Target};
use super::weight::{Data, Weight};
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::Directory;
use crate::quant::{self, Matrix};
use crate::reserve::threads;

/// Storage types that the output projection can be requantized to, with almost no loss of quality.
pub const LM_HEAD_TYPES: [DType; 2] = [DType::Q8_0, DType::Q6K];

/// Encodes a matrix as type `to` with `thread_count` threads (0: every core), after the modules of
/// adapters were added.
///
/// # Errors
///
/// `Unsupported` for a type without an encoder and for rows that are not a multiple of the block size,
/// `Memory` if the copy does not fit into free memory, `Format` for values that cannot be encoded.
pub(crate) fn encode_weight(
    weight: &Weight,
    to: DType,
    merges: &[Merge<'_>],
    file: &Directory,
    thread_count: u32,
) -> Result<Weight> {
    let name = weight.tensor(file);
    if quant::encoder(to).is_none() {
        bail!(
            Unsupported,
            "tensor {name}: {to} cannot be encoded while loading"
        );
    }
    let Some(row_bytes) = to.bytes(weight.cols.into()) else {
        bail!(
            Unsupported,
            "type {to}: rows of tensor {name} have {} elements, expected a multiple of the \
             block size {}",
            weight.cols,
            to.facts().block
        );
    };
    let len = row_bytes.saturating_mul(weight.rows.into());
    let mut bytes = reserve(name, to, len)?;
    let matrix = Matrix {
        bytes: weight.codes.bytes(file),
        scales: weight.scales(file),
        rows: weight.rows as usize,
        cols: weight.cols as usize,
    };
    let target = Target {
        dtype: to,
        importance: None,
        threads: threads(thread_count),
    };
    Rows::plain(name, weight.dtype, matrix)
        .merged(merges)
        .encode(&target, &mut |chunk| {
            bytes.extend_from_slice(&chunk.bytes);
            Ok(())
        })?;
    Ok(Weight {
        dtype: to,
        codes: Data::computed(weight.codes.tensor, bytes),
        scales: None,
        ..weight.clone()
    })
}
