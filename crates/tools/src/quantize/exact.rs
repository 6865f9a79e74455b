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
    let parts = std::thread::scope(|scope| {
        let check = |first: usize| {
            let rows_of_part = first..count.min(first + part);
            reserve::thread("tabla-quantize")?
                .spawn_scoped(scope, move || rows.are_exact(rows_of_part, to))
        };
        let running = (0..count).step_by(part).map(check);
        let running = running.collect::<Result<Vec<_>, _>>()?;
        let parts = running.into_iter().map(|r| r.join());
        Ok(parts.collect::<Vec<_>>())
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
