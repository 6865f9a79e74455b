//! `y[t, i] += scale * x[t, i]`

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::operands::add::AT;
use tabla_core::op::params::add::Params;

struct Add;

impl Kernel for Add {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let x = &args.f32s(AT.x)[args.range()];
        for (y, x) in args.open::<f32>(AT.y).units(1).iter_mut().zip(x) {
            *y += p.scale * x;
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let dim = p.dim as usize;
    let launch = request.launch::<Add>(Split::Rows(dim), p.tokens);
    Ok(launch.of_elements(p.tokens as usize * dim))
}
