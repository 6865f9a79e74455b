//! `y[t, i] = penalty(x[t, i])`, where `i` is among the last tokens of the history

use super::{Launch, PLAIN, Request};
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd};
use crate::op::builder::LogitRows;
use crate::op::shaders::penalize::Params;

/// Tokens of the history that are looked at, at most.
const REPEAT_LAST_MAX: usize = 1024;

/// Logits of a row that go together.
const PIECE: usize = 1024;

struct Penalize;

impl Kernel for Penalize {
    /// A unit is a piece of a row.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let vocab = p.vocab as usize;
        let x = args.f32s(0);
        let history: &[u32] = bytemuck::cast_slice(args.bytes(1));
        let (samplers, context) = (args.samplers(3), args.state(4).context as usize);
        let rows = args.rows(4);
        let each = vocab.div_ceil(PIECE);
        let mut out = args.open::<f32>(2);
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
            for token in &history[known - last..known] {
                let Some(i) = (*token as usize).checked_sub(start) else {
                    continue;
                };
                // From x, not from y: a token that stands there twice is penalised once.
                if let Some(x) = x.get(i) {
                    let p = sampler.repeat_penalty;
                    y[i] = if *x > 0.0 { x / p } else { x * p };
                }
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(request.by_pieces::<Penalize>(p.tokens, p.vocab, PIECE))
}

macro_rules! case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     $penalty:literal, $last:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            position: $position,
            context: $context,
            logits: LogitRows::All,
            emit: |b| b.pick_sampled($vocab),
            sampler: |s| {
                s.repeat_penalty = $penalty;
                s.repeat_last = $last;
            },
            ..PLAIN
        }
    };
}

/// Off, short of the history, beyond it, beyond the limit, rows; runners draw repeated tokens.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 1/1 at 0 of 1, 1.5, 8),
    case!("off", 37, 1/1 at 5 of 8, 1.0, 0),
    case!("the last three", 37, 1/1 at 6 of 16, 1.3, 3),
    case!("longer than the history", 131, 1/1 at 6 of 16, 1.3, 100),
    case!("longer than the limit", 5003, 1/1 at 1500 of 2048, 1.1, 2000),
    case!("rows", 131, 5/4 at 6 of 16, 1.3, 5),
];
