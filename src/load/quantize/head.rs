//! The head in another storage type: of a small model it is half of what a token reads.

use super::rows::{Rows, Target, threads};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, bail};
use crate::format::Directory;
use crate::load::memory::host_free_bytes;
use crate::load::weight::{Data, Weight};
use crate::quant::Matrix;

/// The types that a head may be stored in anew: those that cost next to nothing in quality.
pub const HEAD_TYPES: [DType; 2] = [DType::Q8_0, DType::Q6K];

/// The same matrix in type `to`, encoded by so many threads (0: every core).
///
/// # Errors
///
/// `Unsupported` for rows that are no whole blocks of the type, `Memory` where it does not fit
/// beside what is there, `Format` for numbers that cannot be encoded.
pub(in crate::load) fn encode_head(
    head: &Weight,
    to: DType,
    file: &Directory,
    wanted_threads: u32,
) -> Result<Weight> {
    let name = head.tensor(file);
    let Some(row_bytes) = to.bytes(head.cols.into()) else {
        bail!(
            Unsupported,
            "a head of type {to}: rows of tensor {name} have {} elements, which are no whole \
             blocks of {}",
            head.cols,
            to.facts().block
        );
    };
    let len = row_bytes.saturating_mul(head.rows.into());
    let free = host_free_bytes();
    let no_room = || {
        let message =
            format_args!("tensor {name} as {to} takes {len} bytes, {free} are free").to_string();
        Error::new(ErrorKind::Memory, message)
    };
    let len = usize::try_from(len).map_err(|_| no_room())?;
    let mut bytes = Vec::new();
    if len as u64 > free || bytes.try_reserve_exact(len).is_err() {
        return Err(no_room());
    }
    let matrix = Matrix {
        bytes: head.codes.bytes(file),
        scales: head.scales(file),
        rows: head.rows as usize,
        cols: head.cols as usize,
    };
    let target = Target {
        dtype: to,
        importance: None,
        threads: threads(wanted_threads),
    };
    Rows::plain(name, head.dtype, matrix).encode(&target, &mut |piece| {
        bytes.extend_from_slice(&piece.bytes);
        Ok(())
    })?;
    Ok(Weight {
        dtype: to,
        codes: Data::computed(head.codes.tensor, bytes),
        scales: None,
        ..head.clone()
    })
}
