//! `logprobs[sequence[t]] = ln softmax(x[t, :])` of `ids[t]` and of the 20 largest logits, lowest
//! id first on ties

use super::filters;
use super::softmax::Softmax;
use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::logprobs::{AT, COUNT};
use tabla_core::op::params::Logprobs;
use tabla_core::op::params::logprobs::Params;

impl Kernel for kind::Logprobs {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let x = args.f32s(AT.x);
        let ids: &[u32] = bytemuck::cast_slice(args.bytes(AT.ids));
        let (samplers, rows, live) = (
            args.samplers(AT.samplers),
            args.rows(AT.state),
            args.active_rows(),
        );
        let mut scratch = args.open::<f32>(COUNT);
        let mut out = args.open::<Logprobs>(AT.logprobs);
        let (scratch, out) = (scratch.whole(), out.whole());
        let picked = x.chunks_exact(p.vocab as usize).zip(ids).zip(rows);
        for ((x, id), row) in picked.take(live) {
            let sequence = row.sequence as usize;
            if samplers[sequence].logprobs != 0 {
                out[sequence] = logprobs(x, *id, scratch);
            }
        }
    }
}

/// Log-probabilities of a row; NaN if the largest logit is infinite or `id` is not in the row.
#[inline(always)]
pub fn logprobs(x: &[f32], id: u32, scratch: &mut [f32]) -> Logprobs {
    let all = Softmax::of(x).map_or(f32::NAN, Softmax::log_sum);
    let mut result = Logprobs {
        token: id,
        logprob: x.get(id as usize).map_or(f32::NAN, |x| x - all),
        ..Logprobs::default()
    };
    let capacity = result.tokens.len();
    let least = filters::threshold(x, capacity.min(x.len()), scratch);
    // With fewer numbers than entries, all of them are included.
    let least = least.unwrap_or(f32::NEG_INFINITY);
    let mut count = 0;
    for (id, x) in (0..).zip(x).filter(|(_, x)| **x >= least) {
        let larger = |at: &usize| x > &result.logprobs[*at];
        let at = (0..count).find(larger).unwrap_or(count);
        if at < capacity {
            count = capacity.min(count + 1);
            result.tokens[at..count].rotate_right(1);
            result.logprobs[at..count].rotate_right(1);
            (result.tokens[at], result.logprobs[at]) = (id, *x);
        }
    }
    result.logprobs[..count].iter_mut().for_each(|x| *x -= all);
    result.count = u32::try_from(count).expect("at most 20");
    result
}

impl Link for kind::Logprobs {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(Launch {
            tokens: p.tokens as usize,
            scratch: p.vocab as usize * size_of::<f32>(),
            ..request.single_thread::<Self>()
        })
    }
}
