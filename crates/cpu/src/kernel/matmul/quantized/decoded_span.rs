//! Decoded blocks in memory, for gemm tiles, and their sums.

use super::weight_decode::COLUMNS;
use crate::panel::{QK, StoredCodes, StoredScales};
use crate::simd::rows::{Column, Rows, unroll};
use bytemuck::{Pod, Zeroable};

/// Blocks of [`COLUMNS`] columns.
const BLOCKS: usize = COLUMNS / QK;

/// Decoded blocks of some columns of a panel.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct DecodedSpan {
    /// Words in the order of [`Rows::tile_words`].
    pub(crate) codes: [StoredCodes; BLOCKS],
    pub(crate) scales: [StoredScales; BLOCKS],
    pub(crate) mins: [StoredScales; BLOCKS],
}

/// Loads the sums so far; zeros before the first block of columns.
#[inline(always)]
pub(super) fn load_sums<S: Rows, const T: usize>(
    s: S,
    sums: &[Column],
    first: usize,
) -> [S::Floats; T] {
    let mut loaded = [s.splat_float(0.0); T];
    if first > 0 {
        unroll!(t < T => { loaded[t] = s.column(&sums[t]); });
    }
    loaded
}
