//! `mu[sequence[t]] -= eta * (-log2(softmax(x[t, :])[ids[t]]) - tau)`

use super::filter::Parts;
use super::softmax::Softmax;
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use std::f32::consts::LN_2;
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::mirostat_mu::AT;
use tabla_core::op::params::Sampler;
use tabla_core::op::params::mirostat_mu::Params;

impl Kernel for kind::MirostatMu {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let x = args.f32s(AT.x);
        let ids: &[u32] = bytemuck::cast_slice(args.bytes(AT.ids));
        let (rows, live) = (args.rows(AT.state), args.active_rows());
        let mut samplers = args.open::<Sampler>(AT.samplers);
        let samplers = samplers.whole();
        let maxima = args.f32s(AT.maxima).chunks_exact(p.parts as usize);
        let picked = x.chunks_exact(p.vocab as usize).zip(maxima).zip(ids);
        for (((y, maxima), id), row) in picked.zip(rows).take(live) {
            let sampler = &mut samplers[row.sequence as usize];
            if sampler.mirostat_tau <= 0.0 {
                continue;
            }
            let size = p.part as usize;
            let parts = Parts { y, maxima, size };
            // A row without a finite maximum has no token.
            let softmax = Softmax::of_parts(parts.peak(), parts.live());
            if let (Some(softmax), Some(x)) = (softmax, y.get(*id as usize)) {
                let surprise = (softmax.log_sum() - x) / LN_2;
                let error = surprise - sampler.mirostat_tau;
                sampler.mirostat_mu -= sampler.mirostat_eta * error;
            }
        }
    }
}

impl Link for kind::MirostatMu {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(Launch {
            tokens: p.tokens as usize,
            ..request.single_thread::<Self>()
        })
    }
}
