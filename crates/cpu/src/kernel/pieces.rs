//! Decoded blocks in memory, for gemm tiles, and their sums.

use super::sources::COLUMNS;
use crate::panel::{STRETCH, StoredCodes, StoredNumbers};
use crate::simd::rows::{Column, Rows, unroll};
use bytemuck::{Pod, Zeroable};

/// Blocks of [`COLUMNS`] columns.
const STRETCHES: usize = COLUMNS / STRETCH;

/// Decoded blocks of some columns of a panel.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Piece {
    pub(super) codes: [StoredCodes; STRETCHES],
    pub(super) scales: [StoredNumbers; STRETCHES],
    pub(super) mins: [StoredNumbers; STRETCHES],
}

/// Loads the sums so far; zeros before the first block of columns.
#[inline(always)]
pub(super) fn carried<S: Rows, const T: usize>(
    s: S,
    sums: &[Column],
    first: usize,
) -> [S::Floats; T] {
    let mut carried = [s.splat_float(0.0); T];
    if first > 0 {
        unroll!(t < T => { carried[t] = s.column(&sums[t]); });
    }
    carried
}
