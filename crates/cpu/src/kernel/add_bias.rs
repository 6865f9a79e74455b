//! `y[t, i] += b[i]`

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::error::Result;
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
