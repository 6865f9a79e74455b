//! Shapes of products, and where their sums go.

use crate::memory::{Args, Out};
use tabla_core::op::operands::gemm::AT;
use tabla_core::op::params;

/// The shape of a product, from the parameters of either shader.
pub(super) trait Sizes {
    fn sizes(args: &Args<'_>) -> [usize; 2];
}

/// One token.
pub(super) struct One;

impl Sizes for One {
    fn sizes(args: &Args<'_>) -> [usize; 2] {
        let p: params::gemv::Params = args.params();
        [p.rows as usize, p.cols as usize]
    }
}

/// Many tokens.
pub(super) struct Many;

impl Sizes for Many {
    fn sizes(args: &Args<'_>) -> [usize; 2] {
        let p: params::gemm::Params = args.params();
        [p.rows as usize, p.cols as usize]
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
    pub(super) fn open<const ADD: bool>(args: &mut Args<'a>, rows: usize) -> Self {
        Self {
            y: args.open(AT.y),
            first: args.range().start,
            rows,
            add: ADD,
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
