//! `y[t, i] = x[t, i] - multiplier * base^(n(i) - allowed)`, where token `i` would extend a
//! repetition of `n(i)` tokens

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::dry::AT;
use tabla_core::op::params::dry::Params;

/// Maximum length of a repetition in tokens.
const LONGEST: usize = 1024;

impl Kernel for kind::Dry {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [vocab, words] = [p.vocab, p.words].map(|n| n as usize);
        let x = args.f32s(AT.x);
        let history: &[u32] = bytemuck::cast_slice(args.bytes(AT.history));
        let breakers: &[u32] = bytemuck::cast_slice(args.bytes(AT.breakers));
        let (samplers, context) = (
            args.samplers(AT.samplers),
            args.state(AT.state).context as usize,
        );
        let rows = args.rows(AT.state);
        let mut out = args.open::<f32>(AT.y);
        for t in args.units() {
            let row = rows[t];
            let sequence = row.sequence as usize;
            let sampler = &samplers[sequence];
            let y = out.unit(t, vocab);
            let x = &x[t * vocab..][..vocab];
            if sampler.dry_multiplier <= 0.0 {
                continue;
            }
            let known = context.min((row.position as usize).saturating_add(1));
            let seen = known.min(sampler.dry_penalty_last_n as usize);
            let seen = &history[sequence * context..][known - seen..known];
            let breakers = &breakers[sequence * words..][..words];
            let rate = math::ln(sampler.dry_base);
            repetitions(seen, breakers, |token, n| {
                let Some(over) = n.checked_sub(sampler.dry_allowed) else {
                    return;
                };
                #[expect(clippy::cast_precision_loss, reason = "1024 at most")]
                let over = over as f32;
                // The longest repetition has the largest penalty, so the minimum applies.
                if let Some(y) = y.get_mut(token) {
                    let penalty = sampler.dry_multiplier * math::exp((over * rate).min(88.0));
                    *y = y.min(x[token] - penalty);
                }
            });
        }
    }
}

/// Calls `report` with each token that follows a repetition and with its length: a run in `seen`
/// that is also its suffix and contains no sequence breaker.
#[inline(always)]
pub fn repetitions(seen: &[u32], breakers: &[u32], mut report: impl FnMut(usize, u32)) {
    let breaks = |token: &u32| {
        let word = breakers.get(*token as usize / 32);
        word.is_some_and(|word| word >> (token % 32) & 1 == 1)
    };
    let unbroken = seen.iter().rev().take(LONGEST);
    let unbroken = unbroken.take_while(|token| !breaks(token)).count();
    for end in 1..seen.len() {
        let pairs = seen[..end].iter().rev().zip(seen.iter().rev());
        let same = pairs.take(unbroken).take_while(|(a, b)| a == b).count();
        let n = u32::try_from(same).expect("at most 1024");
        report(seen[end] as usize, n);
    }
}

impl Link for kind::Dry {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(request.by_row::<Self>(p.tokens, p.vocab))
    }
}
