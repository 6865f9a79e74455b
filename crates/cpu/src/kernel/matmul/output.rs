//! Output of matrix products.

use crate::descriptors::{MatmulShape, Write};
use crate::memory::{Args, Out};
use tabla_core::op::operands::gemm::AT;

/// Output of tiles of sums: `y[t, r]`, stored or added.
pub(crate) struct MatmulOutput<'a> {
    y: Out<'a, f32>,
    first: usize,
    rows: usize,
    /// Whether sums are added to the output.
    pub(crate) add: bool,
}

impl<'a> MatmulOutput<'a> {
    pub(crate) fn open(args: &mut Args<'a>, matmul: &MatmulShape) -> Self {
        Self {
            y: args.open(AT.y),
            first: args.range().start,
            rows: matmul.rows,
            add: matmul.write == Write::Add,
        }
    }

    #[inline(always)]
    pub(crate) fn put<const R: usize, const T: usize>(
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
