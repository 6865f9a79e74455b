//! `y[i] += -ln(-ln(u(seed, position, i)))`, u by Philox4x32-10

use super::{Launch, PLAIN, Request};
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd, math};
use crate::exec::cpu::step::Split;
use crate::exec::philox::{LANES, philox};
use crate::op::shaders::gumbel::Params;

/// Counters whose numbers are drawn at once, so that the rounds become vector code.
const DRAWS: usize = 16;

struct Gumbel;

impl Kernel for Gumbel {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let range = args.range();
        let state = args.state(1);
        let key = [state.seed_lo, state.seed_hi];
        let position = args.rows(1)[0].position.wrapping_add(1);
        let mut out = args.open::<f32>(0);
        let y = out.units(1);
        const AT_ONCE: usize = DRAWS * LANES;
        let mut start = range.start / AT_ONCE * AT_ONCE;
        while start < range.end {
            // What of these draws is this thread's.
            let from = range.start.max(start);
            let to = range.end.min(start + AT_ONCE);
            let y = &mut y[from - range.start..to - range.start];
            if y.iter().any(|y| *y > f32::NEG_INFINITY) {
                let noise = noise(key, position, start);
                for (y, noise) in y.iter_mut().zip(&noise[from - start..]) {
                    // What a filter took away stays away: -inf plus anything finite.
                    *y += noise;
                }
            }
            start += AT_ONCE;
        }
    }
}

/// The noise of ids `start..`, with `start` a multiple of what is drawn at once.
#[inline(always)]
fn noise(key: [u32; 2], position: u32, start: usize) -> [f32; DRAWS * LANES] {
    let first = u32::try_from(start / LANES).expect("ids have 32 bits");
    let mut words = [[0; DRAWS]; LANES];
    for (draw, block) in (0..DRAWS).zip(first..) {
        let counter = [block, position, 0, 0];
        for (lane, word) in philox(key, counter).into_iter().enumerate() {
            words[lane][draw] = word;
        }
    }
    let mut noise = [0.0; DRAWS * LANES];
    for (lane, words) in words.iter().enumerate() {
        for (draw, word) in words.iter().enumerate() {
            noise[draw * LANES + lane] = gumbel(*word);
        }
    }
    noise
}

/// `-ln(-ln(u))` with `u` in the middle of one of 2^23 equal parts of (0, 1).
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "23 bits are exact in f32")]
fn gumbel(word: u32) -> f32 {
    let u = ((word >> 9) as f32 + 0.5) * (1.0 / 8_388_608.0);
    -math::ln(-math::ln(u))
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let vocab = p.vocab as usize;
    let launch = request.launch::<Gumbel>(Split::Units(vocab), 1);
    Ok(launch.of_elements(vocab))
}

macro_rules! case {
    ($name:literal, $vocab:literal, $position:literal, $seed:literal) => {
        Case {
            name: $name,
            position: $position,
            emit: |b| b.pick_sampled($vocab),
            state: |state| {
                state.seed_lo = $seed;
                state.seed_hi = 7;
            },
            ..PLAIN
        }
    };
}

/// Ids that end within a draw, a far position.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 0, 0),
    case!("a part of a draw", 37, 3, 0x1234_5678),
    case!("past a draw", 65, 15, 1),
    case!("many", 50_021, 4, 99),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_finite() {
        // -ln(-ln(2^-24)) and -ln(-ln(1 - 2^-24)).
        assert!((gumbel(0) + 2.811_6).abs() < 1e-3);
        assert!((gumbel(u32::MAX) - 16.635_5).abs() < 1e-3);
    }

    #[test]
    fn lanes_are_those_of_single_draws() {
        let all = noise([1, 2], 3, 64);
        for (i, noise) in all.into_iter().enumerate() {
            let id = 64 + u32::try_from(i).expect("small");
            let words = philox([1, 2], [id / 4, 3, 0, 0]);
            assert_eq!(noise, gumbel(words[i % 4]));
        }
    }
}
