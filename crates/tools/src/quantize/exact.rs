//! Selects the smallest type of GGUF files that has all values of a tensor.

use super::source_tensor::SourceTensor;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::load::rows::Rows;
use std::panic::resume_unwind;
use tabla_core::reserve;

/// Types of values without scales that may have all values of a tensor; F32 always has them.
const FLOATS: [DType; 2] = [DType::F16, DType::Bf16];

/// Returns the smallest type that has all values of a tensor with scales in separate tensors. `blocks` are the
/// types with blocks that are allowed, the smallest first.
///
/// # Errors
///
/// `Format` for a value that is not finite, `Memory` if a thread cannot be created.
pub(super) fn smallest_type(
    tensor: &SourceTensor<'_>,
    blocks: &[DType],
    threads: usize,
) -> Result<DType> {
    let rows = tensor.rows()?;
    for to in blocks.iter().copied().chain(FLOATS) {
        if is_exact(&rows, to, threads)? {
            return Ok(to);
        }
    }
    Ok(DType::F32)
}

/// Returns whether a type has all values.
fn is_exact(rows: &Rows<'_>, to: DType, threads: usize) -> Result<bool> {
    let count = rows.count();
    let part = count.div_ceil(threads.max(1)).max(1);
    let check = |first: usize| rows.are_exact(first..count.min(first + part), to);
    let parts = std::thread::scope(|scope| {
        let start = |first: usize| {
            reserve::thread("tabla-quantize")?.spawn_scoped(scope, move || check(first))
        };
        let running = (0..count).step_by(part).skip(1).map(start);
        let running = running.collect::<Result<Vec<_>, _>>()?;
        let own = Ok(check(0));
        let others = running.into_iter().map(|r| r.join());
        Ok(std::iter::once(own).chain(others).collect::<Vec<_>>())
    });
    let failed = |e: std::io::Error| {
        Error::new(ErrorKind::Memory, "cannot create an encoder thread").caused_by(e)
    };
    let mut all = true;
    for part in parts.map_err(failed)? {
        all &= part.unwrap_or_else(|panic| resume_unwind(panic))?;
    }
    Ok(all)
}
