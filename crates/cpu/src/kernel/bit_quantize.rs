//! `q[t, i] = round(x[t, i] 127 / m), d[t] = m / 127`, `m = max(1e-5, |x[t, :]|)`
//!
//! Halves go to even, as in `transformers`' `BitLinear` and in bitnet.cpp. A row that has a number
//! that is not finite yields NaN. Plain Rust on purpose: every level and the shader give the same
//! bits.

use super::{Launch, PLAIN, Request};
use tabla_core::dtype::DType;
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::step::Split;
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
            d.unit(t, 1)[0] = quantise(&x[t * cols..][..cols], q);
        }
    }
}

/// Fills `q`, zeros behind the row, and gives `d`.
#[inline(always)]
fn quantise(x: &[f32], q: &mut [u8]) -> f32 {
    /// Adding it leaves the nearest whole number in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Magnitudes order as their bits do.
    let bits = x.iter().fold(1e-5f32.to_bits(), |m, x| m.max(x.abs().to_bits()));
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

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let launch = request.launch::<BitQuantize>(Split::Rows(1), p.tokens);
    Ok(launch.of_elements(p.tokens as usize * p.cols as usize))
}

macro_rules! case {
    ($name:literal, $cols:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            weights: &[("w", DType::Ternary, 4, $cols)],
            scale: Some(1.0),
            emit: |b| {
                let w = b.weight("w", 4, $cols);
                let x = b.input("x", $cols);
                b.mat("y", w, x);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Odd widths.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 1, 1),
    case!("primes", 37, 5, 3),
    case!("whole vectors", 128, 2, 2),
    case!("past a workgroup", 1031, 3, 2),
    case!("many", 131, 67, 61),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_worked_by_hand() {
        let mut q = [9; 64];
        let d = quantise(&[127.0, -127.0, 2.5, 3.5, -0.5, 0.0], &mut q);
        assert_eq!(d, 1.0);
        assert_eq!(q[..8].iter().map(|q| q.cast_signed()).collect::<Vec<_>>(), [127, -127, 2, 4, 0, 0, 0, 0]);
        assert_eq!(q[8..], [0; 56]);
    }

    #[test]
    fn small_rows_are_held_to_the_floor_and_no_row_is_half_finite() {
        let mut q = [9; 64];
        assert!((quantise(&[1e-6, 0.0], &mut q) - 1e-5 / 127.0).abs() < 1e-13);
        assert_eq!(q[..2], [13, 0]);
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(quantise(&[1.0, x], &mut q).is_nan());
            assert_eq!(q, [0; 64]);
        }
    }
}
