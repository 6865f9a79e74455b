//! The scalar level: every product as its formula reads. The other levels are held against it.

use super::{Quantised, Simd};
use crate::quant::{Chunk, GROUP, q4_0, q4_1, q8_0};
use half::{bf16, f16};

/// Proof of nothing: plain Rust runs anywhere.
#[derive(Clone, Copy, Debug)]
pub(in crate::exec::cpu) struct Scalar;

fn two(bytes: &[u8]) -> [u8; 2] {
    [bytes[0], bytes[1]]
}

/// Integer product of a block: `sum_i w(i) x[i]`.
#[inline(always)]
fn product(x: &[u8; 32], w: impl Fn(usize) -> i32) -> i32 {
    (0..32).map(|i| w(i) * i32::from(x[i].cast_signed())).sum()
}

fn f16_at(bits: [u8; 2]) -> f32 {
    f16::from_le_bytes(bits).to_f32_const()
}

fn nibble(bytes: &[u8], i: usize) -> i32 {
    let byte = bytes[i % 16];
    i32::from(if i < 16 { byte & 15 } else { byte >> 4 })
}

/// Every pair of a row and a token, summed block after block.
#[inline(always)]
fn pairs<const R: usize, const T: usize, const BYTES: usize>(
    w: [&[u8]; R],
    x: [Quantised<'_>; T],
    block: impl Fn(&[u8; BYTES], &[u8; 32], i32) -> [f32; 2],
) -> [[f32; T]; R] {
    w.map(|w| {
        x.map(|x| {
            let mut sum = 0.0;
            for (b, w) in w.as_chunks().0.iter().enumerate() {
                // [what the scale of x multiplies, an offset that it multiplies too]
                let [product, offset] = block(w, &x.q[b], x.sum[b]);
                sum += product * x.d[b] + offset * x.d[b];
            }
            sum
        })
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a block's product is below 2^24"
)]
impl Simd for Scalar {
    const LANES: usize = 1;
    type V = f32;

    #[inline(always)]
    fn splat(self, x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> f32 {
        x[0]
    }
    #[inline(always)]
    fn store(self, y: &mut [f32], v: f32) {
        y[0] = v;
    }
    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
    #[inline(always)]
    fn sum(self, v: f32) -> f32 {
        v
    }
    #[inline(always)]
    fn load_f32(self, bytes: &[u8]) -> f32 {
        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8]) -> f32 {
        f16::from_le_bytes(two(bytes)).to_f32_const()
    }
    #[inline(always)]
    fn load_bf16(self, bytes: &[u8]) -> f32 {
        bf16::from_le_bytes(two(bytes)).to_f32_const()
    }
    #[inline(always)]
    fn prefetch(self, _: &[u8], _: usize) {}

    #[inline(always)]
    fn dot_chunk<const MIN: bool>(self, w: &Chunk, x: Quantised<'_>, mut acc: f32) -> f32 {
        for (g, w_q) in w.q.chunks_exact(GROUP).enumerate().take(2 * x.q.len()) {
            let block = g / 2;
            let x_q = &x.q[block][g % 2 * GROUP..][..GROUP];
            let product = |w: i8, x: u8| i32::from(w) * i32::from(x.cast_signed());
            let ints: i32 = w_q.iter().zip(x_q).map(|(w, x)| product(*w, *x)).sum();
            acc += w.scale[g] * x.d[block] * ints as f32;
            if MIN {
                let sum: i32 = x_q.iter().map(|x| product(1, *x)).sum();
                acc += w.min[g] * x.d[block] * sum as f32;
            }
        }
        acc
    }

    #[inline(always)]
    fn dot_i8(self, w: &[[i8; 64]], x: &[[i8; 64]]) -> i32 {
        let pairs = w.as_flattened().iter().zip(x.as_flattened());
        pairs.map(|(w, x)| i32::from(*w) * i32::from(*x)).sum()
    }

    fn dot_q8_0<const R: usize, const T: usize>(
        self,
        w: [&[u8]; R],
        x: [Quantised<'_>; T],
    ) -> [[f32; T]; R] {
        pairs(w, x, |w: &[u8; q8_0::BYTES], x, _| {
            let sum = product(x, |i| i32::from(w[2 + i].cast_signed()));
            [f16_at(two(w)) * sum as f32, 0.0]
        })
    }

    fn dot_q4_0<const R: usize, const T: usize>(
        self,
        w: [&[u8]; R],
        x: [Quantised<'_>; T],
    ) -> [[f32; T]; R] {
        pairs(w, x, |w: &[u8; q4_0::BYTES], x, _| {
            let sum = product(x, |i| nibble(&w[2..], i) - 8);
            [f16_at(two(w)) * sum as f32, 0.0]
        })
    }

    fn dot_q4_1<const R: usize, const T: usize>(
        self,
        w: [&[u8]; R],
        x: [Quantised<'_>; T],
    ) -> [[f32; T]; R] {
        pairs(w, x, |w: &[u8; q4_1::BYTES], x, total| {
            let sum = product(x, |i| nibble(&w[4..], i));
            [
                f16_at(two(w)) * sum as f32,
                f16_at(two(&w[2..])) * total as f32,
            ]
        })
    }
}
