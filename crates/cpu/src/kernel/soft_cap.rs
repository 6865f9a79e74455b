//! `y[t, i] = cap * tanh(y[t, i] / cap)`

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use tabla_core::error::Result;
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
