//! `y[t, i] = act(gate[t, i]) * up[t, i]`

use super::activation::{self, Family, Function};
use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use std::marker::PhantomData;
use tabla_core::error::Result;
use tabla_core::op::operands::glu::AT;
use tabla_core::op::params::glu::Params;

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
