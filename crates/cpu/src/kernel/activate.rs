//! `y[t, i] = act(y[t, i])`

use super::activation::{self, Family, Function};
use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use std::marker::PhantomData;
use tabla_core::error::Result;
use tabla_core::op::operands::activate::AT;
use tabla_core::op::params::activate::Params;

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
