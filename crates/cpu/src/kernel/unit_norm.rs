//! `y[t, g, i] = x[t, g, i] / sqrt(mean(x[t, g, :]^2) + eps)`

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::operands::unit_norm::AT;
use tabla_core::op::params::unit_norm::Params;

struct UnitNorm;

impl Kernel for UnitNorm {
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "a row is far below 2^24")]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let dim = p.dim as usize;
        let x = args.f32s(AT.x);
        let mut y = args.open::<f32>(AT.y);
        for unit in args.range() {
            let x = &x[unit * dim..][..dim];
            let mean = math::sum(x, |x| x * x) / dim as f32;
            let scale = 1.0 / (mean + p.eps).sqrt();
            for (y, x) in y.unit(unit, dim).iter_mut().zip(x) {
                *y = x * scale;
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let elements = p.tokens as usize * p.groups as usize * p.dim as usize;
    let split = Split::Rows(p.groups as usize);
    let launch = request.launch::<UnitNorm>(split, p.tokens);
    Ok(launch.of_elements(elements))
}
