//! `y[i] = penalty(x[i]) / temperature`, the penalty where `i` is among the last tokens of the history

use super::{Launch, PLAIN, Request};
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd};
use crate::exec::cpu::step::Split;
use crate::op::shaders::penalize::Params;

/// Tokens of the history that are looked at, at most.
const REPEAT_LAST_MAX: usize = 1024;

struct Penalize;

impl Kernel for Penalize {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let range = args.range();
        let x = &args.f32s(0)[range.clone()];
        let history: &[u32] = bytemuck::cast_slice(args.bytes(1));
        let (state, row) = (args.state(3), args.rows(3)[0]);
        let context = state.context as usize;
        let history = &history[row.sequence as usize * context..][..context];
        let mut y = args.open::<f32>(2);
        let y = y.units(1);
        for (y, x) in y.iter_mut().zip(x) {
            *y = x / state.temperature;
        }
        let known = context.min((row.position as usize).saturating_add(1));
        let last = known.min(REPEAT_LAST_MAX).min(state.repeat_last as usize);
        for token in &history[known - last..known] {
            // From x, not from y: a token that stands there twice is penalised once.
            let Some(i) = (*token as usize).checked_sub(range.start) else {
                continue;
            };
            if let Some(x) = x.get(i) {
                let p = state.repeat_penalty;
                y[i] = if *x > 0.0 { x / p } else { x * p } / state.temperature;
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let vocab = p.vocab as usize;
    let launch = request.launch::<Penalize>(Split::Units(vocab), 1);
    Ok(launch.of_elements(vocab))
}

macro_rules! case {
    ($name:literal, $vocab:literal, $position:literal of $context:literal,
     $temperature:literal, $penalty:literal, $last:literal) => {
        Case {
            name: $name,
            position: $position,
            context: $context,
            emit: |b| b.pick_sampled($vocab),
            state: |state| {
                state.temperature = $temperature;
                state.repeat_penalty = $penalty;
                state.repeat_last = $last;
            },
            ..PLAIN
        }
    };
}

/// Off, short of the history, beyond it, beyond the limit; runners draw repeated tokens.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 0 of 1, 1.0, 1.5, 8),
    case!("off", 37, 5 of 8, 0.7, 1.0, 0),
    case!("the last three", 37, 6 of 16, 0.7, 1.3, 3),
    case!("longer than the history", 131, 6 of 16, 2.0, 1.3, 100),
    case!("longer than the limit", 5003, 1500 of 2048, 0.5, 1.1, 2000),
];
