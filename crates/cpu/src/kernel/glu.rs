//! `y[t, i] = act(gate[t, i]) * up[t, i]`

use super::activation::{self, Family, Function};
use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::op::builder::Activation;
use tabla_core::op::operands::glu::AT;
use tabla_core::op::params::glu::Params;
use std::marker::PhantomData;

struct Glu<F>(PhantomData<F>);

impl<F: Function> Kernel for Glu<F> {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let range = args.range();
        let gate = &args.f32s(AT.gate)[range.clone()];
        let up = &args.f32s(AT.up)[range];
        let mut y = args.open::<f32>(AT.y);
        for ((y, g), u) in y.units(1).iter_mut().zip(gate).zip(up) {
            *y = F::of(*g) * u;
        }
    }
}

struct Glus;

impl Family for Glus {
    type With<F: Function> = Glu<F>;
}

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    activation::link::<Glus>(request, p.activation, [p.dim, p.tokens])
}

macro_rules! case {
    ($name:literal, $act:ident, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: concat!($name, " ", stringify!($act)),
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let gate = b.input("gate", $dim);
                let up = b.input("up", $dim);
                b.glu(Activation::$act, gate, up);
            },
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Odd widths.
pub(super) const CASES: &[Case] = &[
    case!("one", Silu, 1, 1, 1),
    case!("primes", Silu, 37, 5, 3),
    case!("past a vector", Silu, 257, 2, 2),
    case!("wide", Silu, 8191, 1, 1),
    case!("many", Silu, 131, 67, 61),
    case!("primes", Gelu, 37, 5, 3),
    case!("many", Gelu, 131, 67, 61),
    case!("primes", GeluTanh, 37, 5, 3),
    case!("many", GeluTanh, 131, 67, 61),
    case!("primes", Relu2, 37, 5, 3),
    case!("many", Relu2, 131, 67, 61),
    case!("primes", Relu, 37, 5, 3),
    case!("many", Relu, 131, 67, 61),
];
