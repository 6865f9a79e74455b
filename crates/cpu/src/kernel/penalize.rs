//! `y[t, i] = repeated(x[t, i]) - count(i) frequency - presence`, where `i` is among the last tokens of
//! the history

use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::exec::state::Sampler;
use tabla_core::op::builder::LogitRows;
use tabla_core::op::sampler::SamplerKind;
use tabla_core::op::operands::penalize::AT;
use tabla_core::op::params::penalize::Params;
use tabla_core::op::sampling;

/// Tokens of the history that are looked at, at most.
const REPEAT_LAST_MAX: usize = sampling::REPEAT_LAST_MAX as usize;

/// Logits of a row that go together.
const PIECE: usize = 1024;

struct Penalize;

impl Kernel for Penalize {
    /// A unit is a piece of a row.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let vocab = p.vocab as usize;
        let x = args.f32s(AT.x);
        let history: &[u32] = bytemuck::cast_slice(args.bytes(AT.history));
        let (samplers, context) = (args.samplers(AT.samplers), args.state(AT.state).context as usize);
        let rows = args.rows(AT.state);
        let each = vocab.div_ceil(PIECE);
        let mut out = args.open::<f32>(AT.y);
        for unit in args.units() {
            let (t, start) = (unit / each, unit % each * PIECE);
            let row = rows[t];
            let sampler = &samplers[row.sequence as usize];
            let y = out.pieces(unit, [vocab, PIECE]);
            let x = &x[t * vocab + start..][..y.len()];
            y.copy_from_slice(x);
            let history = &history[row.sequence as usize * context..][..context];
            let known = context.min((row.position as usize).saturating_add(1));
            let last = known.min(REPEAT_LAST_MAX).min(sampler.repeat_last as usize);
            let recent = &history[known - last..known];
            for token in recent {
                let Some(i) = (*token as usize).checked_sub(start) else {
                    continue;
                };
                // From x, not from y: a token that stands there twice has been penalised with both.
                if let Some(x) = x.get(i) {
                    let count = recent.iter().filter(|other| *other == token).count();
                    y[i] = penalised(sampler, *x, count);
                }
            }
        }
    }
}

#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "a count of the last few tokens")]
fn penalised(sampler: &Sampler, x: f32, count: usize) -> f32 {
    let repeat = sampler.repeat_penalty;
    let repeated = if x > 0.0 { x / repeat } else { x * repeat };
    repeated - (count as f32 * sampler.frequency_penalty + sampler.presence_penalty)
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(request.by_pieces::<Penalize>(p.tokens, p.vocab, PIECE))
}

macro_rules! case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $last:literal, $sampler:expr) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            position: $position,
            context: $context,
            logits: LogitRows::All,
            emit: |b| b.pick_sampled($vocab, SamplerKind::DEFAULT),
            sampler: |s| {
                s.repeat_last = $last;
                let set: fn(&mut Sampler) = $sampler;
                set(s);
            },
            ..PLAIN
        }
    };
}

/// Off, short of the history, beyond it, beyond the limit, by count, all at once, rows; runners draw
/// repeated tokens.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 1/1 at 0 of 1, 8, |s| s.repeat_penalty = 1.5),
    case!("off", 37, 1/1 at 5 of 8, 0, |_| {}),
    case!("the last three", 37, 1/1 at 6 of 16, 3, |s| s.repeat_penalty = 1.3),
    case!("longer than the history", 131, 1/1 at 6 of 16, 100, |s| s.repeat_penalty = 1.3),
    case!("longer than the limit", 5003, 1/1 at 1500 of 2048, 2000, |s| s.repeat_penalty = 1.1),
    case!("by count", 131, 1/1 at 90 of 128, 64, |s| s.frequency_penalty = 0.25),
    case!("for being there", 131, 1/1 at 90 of 128, 64, |s| s.presence_penalty = -0.5),
    case!("all at once", 1031, 1/1 at 90 of 128, 80, |s| {
        (s.repeat_penalty, s.frequency_penalty, s.presence_penalty) = (0.8, -0.1, 0.7);
    }),
    case!("rows", 131, 5/4 at 6 of 16, 5, |s| (s.repeat_penalty, s.frequency_penalty) = (1.3, 0.1)),
];
