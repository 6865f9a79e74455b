//! Products of a matrix and activations: what gemv, gemm and their adding twins share.
//!
//! A tile is some rows by some tokens; each of its sums runs along the columns in one order,
//! whatever the tile. So a token's result is the same bits alone, in a batch of any size, and
//! on any number of threads.

use super::chunks;
use super::codes::{self, Wanted};
use super::floats;
use super::{Launch, Request};
use crate::memory::{Args, Out};
use crate::panel::STRETCH;
use tabla_core::device::Precision;
use tabla_core::error::Result;
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

/// The kernel of a product of this shape: `[tokens, rows, cols]`.
pub(super) fn link<N: Sizes, const ADD: bool>(
    request: &Request<'_>,
    shape: [u32; 3],
) -> Result<Launch> {
    // Activations go to int8 in whole stretches.
    let whole = (shape[2] as usize).is_multiple_of(STRETCH);
    let [tokens, rows, cols] = shape;
    let wanted = Wanted {
        tokens,
        rows,
        cols,
        add: ADD,
    };
    if request.precision == Precision::Fast
        && whole
        && let Some(launch) = codes::link(request, wanted)
    {
        return Ok(launch);
    }
    match floats::link::<N, ADD>(request, shape) {
        Some(launch) => Ok(launch),
        None => chunks::link::<N, ADD>(request, shape),
    }
}
