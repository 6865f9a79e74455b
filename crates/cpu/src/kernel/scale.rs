//! `y[t, i] *= factor`

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::operands::scale::AT;
use tabla_core::op::params::scale::Params;

struct Scale;

impl Kernel for Scale {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        for y in args.open::<f32>(AT.y).units(1) {
            *y *= p.factor;
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let dim = p.dim as usize;
    let launch = request.launch::<Scale>(Split::Rows(dim), p.tokens);
    Ok(launch.of_elements(p.tokens as usize * dim))
}
