//! `y[t, i] = x[t, i] - multiplier * base^(n(i) - allowed)`, where `i` would go on with a repetition of
//! `n(i)` tokens

use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use tabla_core::op::builder::LogitRows;
use tabla_core::op::sampler::SamplerKind;
use tabla_core::op::operands::dry::AT;
use tabla_core::op::params::dry::Params;

/// Tokens of a repetition that count, at most.
const LONGEST: usize = 1024;

struct Dry;

impl Kernel for Dry {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [vocab, words] = [p.vocab, p.words].map(|n| n as usize);
        let x = args.f32s(AT.x);
        let history: &[u32] = bytemuck::cast_slice(args.bytes(AT.history));
        let breakers: &[u32] = bytemuck::cast_slice(args.bytes(AT.breakers));
        let (samplers, context) = (args.samplers(AT.samplers), args.state(AT.state).context as usize);
        let rows = args.rows(AT.state);
        let mut out = args.open::<f32>(AT.y);
        for t in args.units() {
            let row = rows[t];
            let sequence = row.sequence as usize;
            let sampler = &samplers[sequence];
            let y = out.unit(t, vocab);
            let x = &x[t * vocab..][..vocab];
            y.copy_from_slice(x);
            if sampler.dry_multiplier <= 0.0 {
                continue;
            }
            let known = context.min((row.position as usize).saturating_add(1));
            let seen = known.min(sampler.dry_last as usize);
            let seen = &history[sequence * context..][known - seen..known];
            let breakers = &breakers[sequence * words..][..words];
            let rate = math::ln(sampler.dry_base);
            repetitions(seen, breakers, |token, n| {
                let Some(over) = n.checked_sub(sampler.dry_allowed) else {
                    return;
                };
                #[expect(clippy::cast_precision_loss, reason = "1024 at most")]
                let over = over as f32;
                // The longest repetition takes away most, so the smallest number is the one that stays.
                if let Some(y) = y.get_mut(token) {
                    let penalty = sampler.dry_multiplier * math::exp((over * rate).min(88.0));
                    *y = y.min(x[token] - penalty);
                }
            });
        }
    }
}

/// Tells of each token that stands behind a repetition, and how many tokens that has: a stretch of
/// `seen` that is also its end, and holds no breaker.
#[inline(always)]
fn repetitions(seen: &[u32], breakers: &[u32], mut tell: impl FnMut(usize, u32)) {
    let breaks = |token: &u32| {
        let word = breakers.get(*token as usize / 32);
        word.is_some_and(|word| word >> (token % 32) & 1 == 1)
    };
    let unbroken = seen.iter().rev().take(LONGEST);
    let unbroken = unbroken.take_while(|token| !breaks(token)).count();
    for end in 1..seen.len() {
        let pairs = seen[..end].iter().rev().zip(seen.iter().rev());
        let same = pairs.take(unbroken).take_while(|(a, b)| a == b).count();
        let n = u32::try_from(same).expect("a few tokens");
        tell(seen[end] as usize, n);
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(request.by_row::<Dry>(p.tokens, p.vocab))
}

macro_rules! case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal at $position:literal of $context:literal,
     [$multiplier:literal, $base:literal], $allowed:literal, $last:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            position: $position,
            context: $context,
            logits: LogitRows::All,
            emit: |b| b.pick_full($vocab, SamplerKind::DEFAULT),
            sampler: |s| {
                (s.dry_multiplier, s.dry_base) = ($multiplier, $base);
                (s.dry_allowed, s.dry_last) = ($allowed, $last);
            },
            ..PLAIN
        }
    };
}

/// Off, short of the history, the whole of it, rows; runners draw repeated tokens and few breakers.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 1/1 at 0 of 1, [0.8, 1.75], 2, 8),
    case!("off", 37, 1/1 at 5 of 8, [0.0, 1.75], 2, 8),
    case!("single tokens", 37, 1/1 at 14 of 16, [0.8, 1.75], 1, 10),
    case!("all that was seen", 131, 1/1 at 14 of 16, [0.8, 1.75], 0, 100),
    case!("long", 5003, 1/1 at 1500 of 2048, [0.3, 2.5], 1, 2000),
    case!("rows", 131, 5/4 at 120 of 128, [1.5, 1.2], 1, 90),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn told(seen: &[u32], breakers: &[u32]) -> Vec<(usize, u32)> {
        let mut told = Vec::new();
        repetitions(seen, breakers, |token, n| {
            if n > 0 {
                told.push((token, n));
            }
        });
        told
    }

    #[test]
    fn a_repetition_ends_like_the_text_and_holds_no_breaker() {
        let seen = [1, 2, 3, 4, 9, 2, 3, 7, 1, 2, 3];
        assert_eq!(told(&seen, &[0]), [(4, 3), (7, 2)]);
        // Token 2 is one.
        assert_eq!(told(&seen, &[1 << 2]), [(4, 1), (7, 1)]);
        assert_eq!(told(&seen, &[1 << 3]), []);
        assert_eq!(told(&[5, 5, 5], &[0]), [(5, 1), (5, 2)]);
        assert_eq!(told(&[5], &[0]), []);
    }
}
