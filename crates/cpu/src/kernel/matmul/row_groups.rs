//! Division of matrix products: spans of columns, groups of rows and of tokens; prefetching of rows.

use crate::simd::Simd;
use std::ops::Range;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Bytes between the next rows and those that are prefetched to the L2 cache. With few columns, the next
/// rows alone are read before memory answers.
const AHEAD: usize = 16 << 10;

/// Divides the columns of a row into spans of `step`.
pub(crate) fn column_spans(cols: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    let span = move |first| first..cols.min(first + step);
    (0..cols).step_by(step).map(span)
}

/// Divides a range into groups of these sizes, largest first; the last size must be 1.
pub(crate) fn groups(
    mut rest: Range<usize>,
    sizes: &[usize],
) -> impl Iterator<Item = Range<usize>> {
    std::iter::from_fn(move || {
        let size = sizes.iter().find(|&&size| size <= rest.len())?;
        let group = rest.start..rest.start + size;
        rest.start = group.end;
        Some(group)
    })
}

/// Prefetch targets of a tile.
pub(crate) struct Next<'a> {
    /// Rows, and the offset of the next rows' part, after which [`AHEAD`] bytes are skipped and lines go
    /// to the L2 cache in the order of memory.
    pub(crate) rows: (&'a [u8], usize),
    /// Offset of the next read, more of these rows or the next ones, which goes to the L1 cache: a
    /// core drops prefetches while it waits for too many lines.
    pub(crate) read: usize,
}

impl Next<'_> {
    /// Prefetches a line after the next rows, and the line that is read after `w`.
    #[inline(always)]
    pub(crate) fn prefetch<S: Simd>(&self, s: S, w: &[u8], line: usize) {
        let (rows, part) = self.rows;
        s.prefetch(rows, part + AHEAD + LINE * line);
        s.prefetch_l1(w, self.read);
    }
}
