//! `y[t, i] = silu(gate[t, i]) * up[t, i]`

use super::{Launch, PLAIN, Request};
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd, math};
use crate::exec::cpu::step::Split;
use crate::op::shaders::swiglu::Params;

struct Swiglu;

impl Kernel for Swiglu {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let range = args.range();
        let gate = &args.f32s(0)[range.clone()];
        let up = &args.f32s(1)[range];
        let mut y = args.open::<f32>(2);
        for ((y, g), u) in y.units(1).iter_mut().zip(gate).zip(up) {
            *y = g / (1.0 + math::exp(-g)) * u;
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let dim = p.dim as usize;
    let launch = request.launch::<Swiglu>(Split::Rows(dim), p.tokens);
    Ok(launch.of_elements(p.tokens as usize * dim))
}

macro_rules! case {
    ($name:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let gate = b.input("gate", $dim);
                let up = b.input("up", $dim);
                b.swiglu(gate, up);
            },
            ..PLAIN
        }
    };
}

/// Odd widths.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 1, 1),
    case!("primes", 37, 5, 3),
    case!("past a vector", 257, 2, 2),
    case!("wide", 8191, 1, 1),
    case!("many", 131, 67, 61),
];
