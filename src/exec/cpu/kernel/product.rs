//! Products of a matrix and activations: what gemv, gemm and their adding twins share.
//!
//! A tile is some rows by some tokens; each of its sums runs along the columns in one order,
//! whatever the tile. So a token's result is the same bits alone, in a batch of any size, and
//! on any number of threads.

use super::chunks;
use super::codes;
use super::floats::{Bf16, Decoded, F16, F32};
use super::{Launch, Request};
use crate::device::Precision;
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::cpu::memory::{Args, Out};
use crate::exec::cpu::panel::STRETCH;
use crate::exec::cpu::simd::{Kernel, Simd};
use crate::exec::cpu::step::Split;
use crate::op::shaders;
use std::marker::PhantomData;

/// The shape of a product, from the parameters of either shader.
pub(super) trait Sizes {
    fn sizes(args: &Args<'_>) -> [usize; 2];
}

/// One token.
pub(super) struct One;

impl Sizes for One {
    fn sizes(args: &Args<'_>) -> [usize; 2] {
        let p: shaders::gemv::Params = args.params();
        [p.rows as usize, p.cols as usize]
    }
}

/// Many tokens.
pub(super) struct Many;

impl Sizes for Many {
    fn sizes(args: &Args<'_>) -> [usize; 2] {
        let p: shaders::gemm::Params = args.params();
        [p.rows as usize, p.cols as usize]
    }
}

/// Weights, activations, and the product of a tile of them.
pub(super) trait Format {
    /// All rows of activations.
    type Activations<'a>: Copy;
    /// A row of activations.
    type Row<'a>: Copy;

    fn row_bytes(cols: usize) -> usize;
    /// Bytes of a row of activations, which say how many rows a core's cache holds.
    fn activation_bytes(cols: usize) -> usize;
    fn activations<'a>(args: &Args<'a>, cols: usize) -> Self::Activations<'a>;
    /// Row `t`. The clause is what makes the lifetimes of trait and implementations agree.
    fn row<'a>(x: Self::Activations<'a>, t: usize) -> Self::Row<'a>
    where
        'a: 'a;
    fn dot<S: Simd, const R: usize, const T: usize>(
        s: S,
        w: [&[u8]; R],
        x: [Self::Row<'_>; T],
    ) -> [[f32; T]; R];
}

/// Rows of a tile.
const ROWS: usize = 4;

/// Bytes of activations that stay in a core's cache while the matrix passes by.
const ACTIVATIONS_BYTES: usize = 192 << 10;

struct Product<F, N, const ADD: bool>(PhantomData<(F, N)>);

impl<F: Format, N: Sizes, const ADD: bool> Kernel for Product<F, N, ADD> {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let [rows, cols] = N::sizes(&args);
        let mut out = Sums::<ADD>::open(&mut args, rows);
        let x = F::activations(&args, cols);
        let w = args.bytes(0);
        let bytes = F::row_bytes(cols);
        let weights = |r: usize| &w[r * bytes..][..bytes];
        let range = args.range();
        let block = (ACTIVATIONS_BYTES / F::activation_bytes(cols).max(1)).max(4);
        for first in (0..args.live()).step_by(block) {
            let tokens = first..args.live().min(first + block);
            let whole = range.start + range.len() / ROWS * ROWS;
            for r in (range.start..whole).step_by(ROWS) {
                let w: [&[u8]; ROWS] = std::array::from_fn(|i| weights(r + i));
                let mut t = tokens.start;
                while t + 4 <= tokens.end && S::LANES > 8 {
                    let x = std::array::from_fn(|i| F::row(x, t + i));
                    out.put(r, t, F::dot::<S, ROWS, 4>(s, w, x));
                    t += 4;
                }
                while t + 2 <= tokens.end {
                    let x = std::array::from_fn(|i| F::row(x, t + i));
                    out.put(r, t, F::dot::<S, ROWS, 2>(s, w, x));
                    t += 2;
                }
                if t < tokens.end {
                    out.put(r, t, F::dot::<S, ROWS, 1>(s, w, [F::row(x, t)]));
                }
            }
            for r in whole..range.end {
                for t in tokens.clone() {
                    out.put(r, t, F::dot::<S, 1, 1>(s, [weights(r)], [F::row(x, t)]));
                }
            }
        }
    }
}

/// Where the sums of tiles go: `y[t, r]`, stored or added.
pub(super) struct Sums<'a, const ADD: bool> {
    y: Out<'a, f32>,
    first: usize,
    rows: usize,
}

impl<'a, const ADD: bool> Sums<'a, ADD> {
    pub(super) fn open(args: &mut Args<'a>, rows: usize) -> Self {
        Self {
            y: args.open(2),
            first: args.range().start,
            rows,
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
                *y = if ADD { *y + sums[i] } else { sums[i] };
            }
        }
    }
}

/// The kernel of a product of this shape: `[tokens, rows, cols]`.
pub(super) fn link<N: Sizes, const ADD: bool>(
    request: &Request<'_>,
    [tokens, rows, cols]: [u32; 3],
) -> Result<Launch> {
    let split = Split::Units(rows as usize);
    let shape = [tokens, rows, cols];
    // Activations go to int8 in whole stretches.
    let whole = (cols as usize).is_multiple_of(STRETCH);
    if request.precision == Precision::Fast && whole {
        if let Some(launch) = codes::link(request, shape, ADD) {
            return Ok(launch);
        }
    }
    let floats = match request.variant {
        Some(DType::F32) => request.launch::<Product<Decoded<F32>, N, ADD>>(split, tokens),
        Some(DType::F16) => request.launch::<Product<Decoded<F16>, N, ADD>>(split, tokens),
        Some(DType::Bf16) => request.launch::<Product<Decoded<Bf16>, N, ADD>>(split, tokens),
        _ => return chunks::link::<N, ADD>(request, shape),
    };
    Ok(floats)
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
            ("past a chunk", E2m1, 5, 288), ("past a chunk", E4m3, 3, 352),
            ("past a chunk", I8, 5, 288), ("quarters", Ternary, 12, 320))
    };
    (@list $tokens:literal, $live:literal, $emit:ident,
     $(($name:literal, $dtype:ident, $rows:literal, $cols:literal)),+) => {
        &[$($crate::exec::case::Case {
            name: concat!($name, " ", stringify!($dtype)),
            tokens: $tokens,
            live: $live,
            weights: &[("w", $crate::dtype::DType::$dtype, $rows, $cols)],
            emit: |b| {
                let w = b.weight("w", $rows, $cols);
                let x = b.input("x", $cols);
                let y = b.input("y", $rows);
                $emit(b, w, x, y);
            },
            ..$crate::exec::cpu::kernel::PLAIN
        }),+]
    };
}
pub(super) use mat_cases;
