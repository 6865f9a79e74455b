//! Shapes of products, and where their sums go.

use crate::descriptors::Dense;
use crate::memory::{Args, Out};
use tabla_core::op::operands::gemm::AT;

/// The shape of a product, and what becomes of its sums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Rows of activations at most.
    pub(super) tokens: u32,
    /// Rows of the matrix.
    pub(super) rows: u32,
    /// Columns: whole stretches.
    pub(super) cols: u32,
    /// Whether the sums are added to what is there.
    pub(super) add: bool,
}

impl Wanted {
    /// What a kernel of floats is told.
    pub(super) fn dense(self) -> Dense {
        Dense {
            rows: self.rows as usize,
            cols: self.cols as usize,
            add: self.add,
            round: false,
        }
    }
}

/// Where the sums of tiles go: `y[t, r]`, stored or added.
pub(super) struct Sums<'a> {
    y: Out<'a, f32>,
    first: usize,
    rows: usize,
    /// Whether they are added.
    pub(super) add: bool,
}

impl<'a> Sums<'a> {
    pub(super) fn open(args: &mut Args<'a>, Dense { rows, add, .. }: Dense) -> Self {
        Self {
            y: args.open(AT.y),
            first: args.range().start,
            rows,
            add,
        }
    }

    #[inline(always)]
    pub(super) fn put<const R: usize, const T: usize>(
        &mut self,
        r: usize,
        t: usize,
        sums: [[f32; T]; R],
    ) {
        for i in 0..T {
            let y = self.y.columns(t + i, self.rows, 1);
            for (y, sums) in y[r - self.first..][..R].iter_mut().zip(&sums) {
                *y = if self.add { *y + sums[i] } else { sums[i] };
            }
        }
    }
}
