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

/// The shapes that products are tried on: `mat_cases!(tokens, live, emit)`.
macro_rules! mat_cases {
    ($tokens:literal, $live:literal, $emit:ident) => {
        mat_cases!(@list $tokens, $live, $emit,
            ("one", F32, 1, 1), ("primes", F32, 7, 37), ("past a block", F32, 5, 129),
            ("primes", F16, 11, 67), ("wide", F16, 64, 96), ("past a block", Bf16, 6, 33),
            ("wide", Bf16, 13, 128), ("one block", Q8_0, 3, 32), ("odd blocks", Q8_0, 17, 96),
            ("even blocks", Q8_0, 64, 256), ("one block", Q4_0, 1, 32),
            ("odd blocks", Q4_0, 29, 160), ("even blocks", Q4_0, 64, 128),
            ("one block", Q4_1, 2, 32), ("odd blocks", Q4_1, 19, 96),
            ("even blocks", Q4_1, 36, 192), ("past a chunk", Q5_0, 5, 352),
            ("past a chunk", Q5_1, 3, 288), ("chunks", Q2K, 5, 512), ("chunks", Q3K, 3, 768),
            ("chunks", Q4K, 7, 512), ("chunks", Q5K, 5, 256), ("chunks", Q6K, 3, 512),
            ("chunks", Q8K, 2, 512), ("past a chunk", Iq4Nl, 6, 352), ("chunks", Iq4Xs, 5, 512),
            ("chunks", Iq1S, 3, 512), ("chunks", Iq1M, 5, 256), ("chunks", Iq2Xxs, 3, 512),
            ("chunks", Iq2Xs, 5, 256), ("chunks", Iq2S, 3, 512), ("chunks", Iq3Xxs, 5, 256),
            ("chunks", Iq3S, 3, 512), ("past a chunk", Mxfp4, 7, 320), ("chunks", Tq1_0, 5, 512),
            ("chunks", Tq2_0, 3, 512), ("blocks over rows", I2S, 8, 288),
            ("past a chunk", Affine2, 5, 320), ("past a chunk", Affine3, 3, 288),
            ("past a chunk", Affine4, 7, 352), ("past a chunk", Affine5, 5, 288),
            ("past a chunk", Affine6, 3, 320), ("past a chunk", Affine8, 5, 352),
            ("groups", Affine4, 29, 640), ("groups", Affine8, 18, 384),
            ("past a chunk", E2m1, 5, 288), ("past a chunk", E4m3, 3, 352),
            ("past a chunk", I8, 5, 288), ("quarters", Ternary, 12, 320),
            ("past a panel", Bf16, 37, 288), ("past what rests", Bf16, 50, 2144),
            ("past a group of panels", Q4_0, 150, 1056), ("past a group of panels", Q8_0, 131, 544),
            ("past a group of panels", Q4K, 145, 1024), ("past a group of panels", Q6K, 131, 768))
    };
    (@list $tokens:literal, $live:literal, $emit:ident,
     $(($name:literal, $dtype:ident, $rows:literal, $cols:literal)),+) => {
        &[$(tabla_core::exec::case::Case {
            name: concat!($name, " ", stringify!($dtype)),
            tokens: $tokens,
            live: $live,
            weights: &[("w", tabla_core::dtype::DType::$dtype, $rows, $cols)],
            emit: |b| {
                let w = b.weight("w", $rows, $cols);
                let x = b.input("x", $cols);
                let y = b.input("y", $rows);
                $emit(b, w, x, y);
            },
            ..$crate::kernel::PLAIN
        }),+]
    };
}
pub(super) use mat_cases;
