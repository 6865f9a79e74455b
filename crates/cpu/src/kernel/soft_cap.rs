//! `y[t, i] = cap * tanh(y[t, i] / cap)`

use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::step::Split;
use tabla_core::op::operands::soft_cap::AT;
use tabla_core::op::params::soft_cap::Params;

struct SoftCap;

impl Kernel for SoftCap {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        for y in args.open::<f32>(AT.y).units(1) {
            *y = p.cap * math::tanh(*y / p.cap);
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let dim = p.dim as usize;
    let launch = request.launch::<SoftCap>(Split::Rows(dim), p.tokens);
    Ok(launch.of_elements(p.tokens as usize * dim))
}

macro_rules! case {
    ($name:literal, $cap:literal, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let y = b.input("y", $dim);
                b.soft_cap(y, $cap);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Caps from far below the numbers to far above.
pub(super) const CASES: &[Case] = &[
    case!("one", 1.0, 1, 1, 1),
    case!("primes", 0.1, 37, 5, 3),
    case!("past a vector", 30.0, 257, 2, 2),
    case!("wide", 1.5, 8191, 1, 1),
    case!("many", 50.0, 131, 67, 61),
];
