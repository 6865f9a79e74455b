//! `y[t, i] += -ln(-ln(u(seed, position[t], i)))`, u by Philox4x32-10

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use tabla_core::error::Result;
use tabla_core::exec::philox::{LANES, chance, philox};
use tabla_core::op::kind;
use tabla_core::op::operands::gumbel::AT;
use tabla_core::op::params::gumbel::Params;

/// Counters per batch of random numbers, so that the rounds are vectorized.
const DRAWS: usize = 16;

/// Token ids per batch.
const IDS_PER_UNIT: usize = DRAWS * LANES;

impl Kernel for kind::Gumbel {
    /// A unit is a batch of token ids of a row.
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let vocab = p.vocab as usize;
        let (samplers, rows) = (args.samplers(AT.samplers), args.rows(AT.state));
        let each = vocab.div_ceil(IDS_PER_UNIT);
        let mut out = args.open::<f32>(AT.y);
        for unit in args.units() {
            let (t, start) = (unit / each, unit % each * IDS_PER_UNIT);
            let row = rows[t];
            let sampler = &samplers[row.sequence as usize];
            if sampler.temperature <= 0.0 {
                continue;
            }
            let y = out.segment(unit, [vocab, IDS_PER_UNIT]);
            if y.iter().any(|y| *y > f32::NEG_INFINITY) {
                let key = [sampler.seed_lo, sampler.seed_hi];
                let noise = noise(key, row.position.wrapping_add(1), start);
                for (y, noise) in y.iter_mut().zip(&noise) {
                    // Filtered logits stay -inf.
                    *y += noise;
                }
            }
        }
    }
}

/// Noise of the ids from `start`, which must be a multiple of the batch size.
#[inline(always)]
fn noise(key: [u32; 2], position: u32, start: usize) -> [f32; IDS_PER_UNIT] {
    let first = u32::try_from(start / LANES).expect("ids fit 32 bits");
    let mut words = [[0; DRAWS]; LANES];
    for (draw, block) in (0..DRAWS).zip(first..) {
        let counter = [block, position, 0, 0];
        for (lane, word) in philox(key, counter).into_iter().enumerate() {
            words[lane][draw] = word;
        }
    }
    let mut noise = [0.0; IDS_PER_UNIT];
    for (lane, words) in words.iter().enumerate() {
        for (draw, word) in words.iter().enumerate() {
            noise[draw * LANES + lane] = gumbel(*word);
        }
    }
    noise
}

/// `-ln(-ln(u))`
#[inline(always)]
fn gumbel(word: u32) -> f32 {
    -math::ln(-math::ln(chance(word)))
}

impl Link for kind::Gumbel {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(request.by_segment::<Self>(p.tokens, p.vocab, IDS_PER_UNIT))
    }
}
