//! A matrix in its file layout.

use super::chunk::{Chunk, GROUP};
use tabla_core::scales::Scales;

/// A matrix in its file layout.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Numbers or codes.
    pub bytes: &'a [u8],
    /// Scales of codes, if they are separate tensors.
    pub scales: Option<Scales<'a>>,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
}

impl<'a> Matrix<'a> {
    /// Bytes of a row, for types with whole bytes per row.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &'a [u8] {
        let bytes = self.bytes.len() / self.rows;
        &self.bytes[row * bytes..][..bytes]
    }

    /// Writes scales and biases of the chunk that starts at `first`.
    #[inline(always)]
    pub(super) fn scales_into(&self, row: usize, first: usize, out: &mut Chunk) {
        let Some(scales) = &self.scales else {
            out.scale.fill(1.0);
            out.min.fill(0.0);
            return;
        };
        let width = scales.group[1];
        let (mut col, mut pair) = (first, scales.at(row, first, self.cols));
        let mut end = first - first % width + width;
        for (scale, min) in out.scale.iter_mut().zip(&mut out.min) {
            if col >= end && col < self.cols {
                pair = scales.at(row, col, self.cols);
                end += width;
            }
            [*scale, *min] = pair;
            col += GROUP;
        }
    }
}
