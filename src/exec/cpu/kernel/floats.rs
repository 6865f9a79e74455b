//! Products with weights that are floats, row by row as the file has them.

use super::product::Format;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{PREFETCH_BYTES, Simd};
use std::marker::PhantomData;

/// Columns that a row is read by.
const BLOCK: usize = 32;

/// A storage type of weights that are floats.
pub(super) trait Weight {
    /// Bytes of [`BLOCK`] elements.
    const BYTES: usize;

    /// Elements `i..i + LANES` of a block.
    fn load<S: Simd>(s: S, block: &[u8], i: usize) -> S::V;
}

macro_rules! float {
    ($name:ident, $bytes:literal, $load:ident) => {
        pub(super) struct $name;

        impl Weight for $name {
            const BYTES: usize = $bytes * BLOCK;

            #[inline(always)]
            fn load<S: Simd>(s: S, block: &[u8], i: usize) -> S::V {
                s.$load(&block[i * $bytes..])
            }
        }
    };
}
float!(F32, 4, load_f32);
float!(F16, 2, load_f16);
float!(Bf16, 2, load_bf16);

/// f32 activations, decoded weights.
pub(super) struct Decoded<W>(PhantomData<W>);

impl<W: Weight> Format for Decoded<W> {
    type Activations<'a> = (&'a [f32], usize);
    type Row<'a> = &'a [f32];

    fn row_bytes(cols: usize) -> usize {
        cols * W::BYTES / BLOCK
    }
    fn activation_bytes(cols: usize) -> usize {
        cols * size_of::<f32>()
    }
    fn activations<'a>(args: &Args<'a>, cols: usize) -> (&'a [f32], usize) {
        (args.f32s(1), cols)
    }
    #[inline(always)]
    fn row<'a>((x, cols): (&'a [f32], usize), t: usize) -> &'a [f32]
    where
        'a: 'a,
    {
        &x[t * cols..][..cols]
    }

    #[inline(always)]
    fn dot<S: Simd, const R: usize, const T: usize>(
        s: S,
        w: [&[u8]; R],
        x: [&[f32]; T],
    ) -> [[f32; T]; R] {
        let cols = x[0].len();
        let mut acc = [[s.splat(0.0); T]; R];
        for b in 0..cols / BLOCK {
            let mut block_w = w;
            for w in &mut block_w {
                *w = &w[b * W::BYTES..][..W::BYTES];
            }
            let mut block_x = x;
            for x in &mut block_x {
                *x = &x[b * BLOCK..][..BLOCK];
            }
            acc = tile::<S, W, R, T>(s, block_w, block_x, acc);
        }
        let rest = cols % BLOCK;
        if rest > 0 {
            // Zeros stand behind the end of the rows.
            let mut wide = [[0u8; 4 * BLOCK]; R];
            for (wide, w) in wide.iter_mut().zip(w) {
                let w = &w[cols / BLOCK * W::BYTES..];
                wide[..w.len()].copy_from_slice(w);
            }
            let mut long = [[0.0; BLOCK]; T];
            for (long, x) in long.iter_mut().zip(x) {
                long[..rest].copy_from_slice(&x[cols - rest..]);
            }
            let w = wide.each_ref().map(|w| &w[..W::BYTES]);
            acc = tile::<S, W, R, T>(s, w, long.each_ref().map(|x| &x[..]), acc);
        }
        let mut sums = [[0.0; T]; R];
        for r in 0..R {
            for t in 0..T {
                sums[r][t] = s.sum(acc[r][t]);
            }
        }
        sums
    }
}

/// Adds the products of one block of columns.
#[inline(always)]
fn tile<S: Simd, W: Weight, const R: usize, const T: usize>(
    s: S,
    w: [&[u8]; R],
    x: [&[f32]; T],
    mut acc: [[S::V; T]; R],
) -> [[S::V; T]; R] {
    // Loops, not `map`: a closure is its own function, which lacks the level's instructions
    // where it is not inlined.
    for w in w {
        for line in (0..W::BYTES).step_by(64) {
            s.prefetch(w, PREFETCH_BYTES + line);
        }
    }
    for i in (0..BLOCK).step_by(S::LANES) {
        let mut block_x = [s.splat(0.0); T];
        for t in 0..T {
            block_x[t] = s.load(&x[t][i..]);
        }
        for r in 0..R {
            let v = W::load(s, w[r], i);
            for t in 0..T {
                acc[r][t] = s.fma(v, block_x[t], acc[r][t]);
            }
        }
    }
    acc
}
