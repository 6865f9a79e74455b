//! `y[t, i] = repeated(x[t, i]) - count(i) frequency - presence`, where `i` is among the last
//! tokens of the history

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::penalize::AT;
use tabla_core::op::params::Sampler;
use tabla_core::op::params::penalize::Params;
use tabla_core::op::sampler;

/// Maximum number of history tokens considered.
const REPEAT_LAST_N_MAX: usize = sampler::REPEAT_LAST_N_MAX as usize;

/// Logits per unit.
const SEGMENT: usize = 1024;

impl Kernel for kind::Penalize {
    /// A unit is a segment of a row.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let vocab = p.vocab as usize;
        let x = args.f32s(AT.x);
        let history: &[u32] = bytemuck::cast_slice(args.bytes(AT.history));
        let (samplers, context) = (
            args.samplers(AT.samplers),
            args.state(AT.state).context as usize,
        );
        let rows = args.rows(AT.state);
        let each = vocab.div_ceil(SEGMENT);
        let mut out = args.open::<f32>(AT.y);
        for unit in args.units() {
            let (t, start) = (unit / each, unit % each * SEGMENT);
            let row = rows[t];
            let sampler = &samplers[row.sequence as usize];
            let y = out.segment(unit, [vocab, SEGMENT]);
            let x = &x[t * vocab + start..][..y.len()];
            y.copy_from_slice(x);
            let history = &history[row.sequence as usize * context..][..context];
            let known = context.min((row.position as usize).saturating_add(1));
            let last = known
                .min(REPEAT_LAST_N_MAX)
                .min(sampler.repeat_last_n as usize);
            let recent = &history[known - last..known];
            for token in recent {
                let Some(i) = (*token as usize).checked_sub(start) else {
                    continue;
                };
                // Computed from x and not from y, so that a token that occurs twice is penalized
                // once.
                if let Some(x) = x.get(i) {
                    let count = recent.iter().filter(|other| *other == token).count();
                    y[i] = penalized(sampler, *x, count);
                }
            }
        }
    }
}

#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "a count of the last few tokens")]
fn penalized(sampler: &Sampler, x: f32, count: usize) -> f32 {
    let repeat = sampler.repetition_penalty;
    let repeated = if x > 0.0 { x / repeat } else { x * repeat };
    repeated - (count as f32 * sampler.frequency_penalty + sampler.presence_penalty)
}

impl Link for kind::Penalize {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(request.by_segment::<Self>(p.tokens, p.vocab, SEGMENT))
    }
}
