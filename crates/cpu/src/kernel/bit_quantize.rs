//! `q[t, i] = round(x[t, i] 127 / m), d[t] = m / 127`, `m = max(1e-5, |x[t, :]|)`
//!
//! Halves go to even, as in `transformers`' `BitLinear` and in bitnet.cpp. A row that has a number
//! that is not finite yields NaN. Plain Rust on purpose: every level and the shader give the same
//! bits.

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::op::operands::bit_quantize::AT;
use tabla_core::op::params::bit_quantize::Params;

struct BitQuantize;

impl Kernel for BitQuantize {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let cols = p.cols as usize;
        let x = args.f32s(AT.x);
        let mut q = args.open::<u8>(AT.q);
        let mut d = args.open::<f32>(AT.d);
        for t in args.range() {
            let q = q.unit(t, cols.next_multiple_of(64));
            d.unit(t, 1)[0] = quantize(&x[t * cols..][..cols], q);
        }
    }
}

/// Fills `q`, zeros behind the row, and gives `d`.
#[inline(always)]
pub fn quantize(x: &[f32], q: &mut [u8]) -> f32 {
    /// Adding it leaves the nearest whole number in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Magnitudes order as their bits do.
    let bits = x
        .iter()
        .fold(1e-5f32.to_bits(), |m, x| m.max(x.abs().to_bits()));
    let largest = f32::from_bits(bits);
    if !largest.is_finite() {
        q.fill(0);
        return f32::NAN;
    }
    let scale = 127.0 / largest;
    let (row, rest) = q.split_at_mut(x.len());
    for (q, x) in row.iter_mut().zip(x) {
        [*q, ..] = (x * scale + ROUND).to_bits().to_le_bytes();
    }
    rest.fill(0);
    largest * (1.0 / 127.0)
}

pub(super) fn link(request: &Request<'_>) -> Launch {
    let p: Params = request.params();
    let launch = request.launch::<BitQuantize>(Split::Rows(1), p.tokens);
    launch.of_elements(p.tokens as usize * p.cols as usize)
}
