//! `y[t, i] = (x[t, i] - mean(x[t, :])) / sqrt(var(x[t, :]) + eps) * w[i]`

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::operands::layer_norm::AT;
use tabla_core::op::params::layer_norm::Params;

struct LayerNorm;

impl Kernel for LayerNorm {
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "a row is far below 2^24")]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let dim = p.dim as usize;
        let (x, w) = (args.f32s(AT.x), &args.f32s(AT.w)[..dim]);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let x = &x[t * dim..][..dim];
            let mean = math::sum(x, |x| x) / dim as f32;
            // Of what is left of the mean: squares of large, nearly equal numbers would cancel.
            let variance = math::sum(x, |x| (x - mean) * (x - mean)) / dim as f32;
            let scale = 1.0 / (variance + p.eps).sqrt();
            for ((y, x), w) in y.unit(t, dim).iter_mut().zip(x).zip(w) {
                *y = (x - mean) * scale * w;
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let launch = request.launch::<LayerNorm>(Split::Rows(1), p.tokens);
    Ok(launch.of_elements(p.tokens as usize * p.dim as usize))
}
