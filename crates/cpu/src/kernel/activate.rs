//! `y[t, i] = act(y[t, i])`

use super::activation::{self, Family, Function};
use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::op::builder::Activation;
use tabla_core::op::operands::activate::AT;
use tabla_core::op::params::activate::Params;
use std::marker::PhantomData;

struct Activate<F>(PhantomData<F>);

impl<F: Function> Kernel for Activate<F> {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        for y in args.open::<f32>(AT.y).units(1) {
            *y = F::of(*y);
        }
    }
}

struct Activates;

impl Family for Activates {
    type With<F: Function> = Activate<F>;
}

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    activation::link::<Activates>(request, p.activation, [p.dim, p.tokens])
}

macro_rules! case {
    ($name:literal, $act:ident, $dim:literal, $tokens:literal, $live:literal) => {
        Case {
            name: concat!($name, " ", stringify!($act)),
            tokens: $tokens,
            live: $live,
            emit: |b| {
                let y = b.input("y", $dim);
                b.activate(Activation::$act, y);
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
