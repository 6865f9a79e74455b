//! `q[t, i] = round(x[t, i] 127 / m), d[t] = m / 127`, `m = max(1e-5, |x[t, :]|)`
//!
//! Rounds ties to even, like `BitLinear` of `transformers` and bitnet.cpp. A row with a number that
//! is not finite yields NaN. Plain Rust, so that all levels and the shader yield the same bits.

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::bit_quantize::AT;
use tabla_core::op::params::bit_quantize::Params;

impl Kernel for kind::BitQuantize {
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

/// Fills `q`, padded with zeros, and returns `d`.
#[inline(always)]
pub fn quantize(x: &[f32], q: &mut [u8]) -> f32 {
    /// Adding this number leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // The bits of absolute values compare like the values.
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

impl Link for kind::BitQuantize {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        let launch = request.launch::<Self>(Split::Rows(1), p.tokens);
        Ok(launch.single_thread_if_small([p.tokens, p.cols]))
    }
}
