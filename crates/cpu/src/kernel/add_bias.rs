//! `y[t, i] += b[i]`

use super::{Launch, PLAIN, Request};
use tabla_core::dtype::DType;
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::step::Split;
use tabla_core::op::operands::add_bias::AT;
use tabla_core::op::params::add_bias::Params;

struct AddBias;

impl Kernel for AddBias {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let dim = p.dim as usize;
        let b = &args.f32s(AT.b)[..dim];
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            for (y, b) in y.unit(t, dim).iter_mut().zip(b) {
                *y += b;
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let launch = request.launch::<AddBias>(Split::Rows(1), p.tokens);
    Ok(launch.of_elements(p.tokens as usize * p.dim as usize))
}

macro_rules! case {
    ($name:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            weights: &[("b", DType::F32, 1, $dim)],
            emit: |b| {
                let bias = b.vector("b", $dim);
                let y = b.input("y", $dim);
                b.add_bias(bias, y);
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
    case!("past a vector", 257, 2, 2),
    case!("many", 131, 67, 61),
];
