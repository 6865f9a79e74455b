//! `log_probs[sequence[t]] = ln softmax(x[t, :])` of `ids[t]`, and of the 20 largest, lowest id first among
//! equals

use super::softmax::Softmax;
use super::top_k;
use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::exec::state::LogProbs;
use tabla_core::op::builder::LogitRows;
use tabla_core::op::sampler::SamplerKind;
use tabla_core::op::operands::log_probs::{AT, COUNT};
use tabla_core::op::params::log_probs::Params;

struct Logs;

impl Kernel for Logs {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let x = args.f32s(AT.x);
        let ids: &[u32] = bytemuck::cast_slice(args.bytes(AT.ids));
        let (samplers, rows, live) = (args.samplers(AT.samplers), args.rows(AT.state), args.live());
        let mut scratch = args.open::<f32>(COUNT);
        let mut out = args.open::<LogProbs>(AT.log_probs);
        let (scratch, out) = (scratch.whole(), out.whole());
        let picked = x.chunks_exact(p.vocab as usize).zip(ids).zip(rows);
        for ((x, id), row) in picked.take(live) {
            let sequence = row.sequence as usize;
            if samplers[sequence].log_probs != 0 {
                out[sequence] = log_probs(x, *id, scratch);
            }
        }
    }
}

/// Those of a row; nothing is the logarithm of anything where a logit is infinite.
#[inline(always)]
fn log_probs(x: &[f32], id: u32, scratch: &mut [f32]) -> LogProbs {
    let all = Softmax::of(x).map_or(f32::NAN, Softmax::log_sum);
    let mut found = LogProbs {
        token: id,
        log_prob: x[id as usize] - all,
        ..LogProbs::default()
    };
    let room = found.tokens.len();
    let least = top_k::threshold(x, room.min(x.len()), scratch);
    // Fewer numbers than have room are all among the largest.
    let least = least.unwrap_or(f32::NEG_INFINITY);
    let mut count = 0;
    for (id, x) in (0..).zip(x).filter(|(_, x)| **x >= least) {
        let larger = |at: &usize| x > &found.log_probs[*at];
        let at = (0..count).find(larger).unwrap_or(count);
        if at < room {
            count = room.min(count + 1);
            found.tokens[at..count].rotate_right(1);
            found.log_probs[at..count].rotate_right(1);
            (found.tokens[at], found.log_probs[at]) = (id, *x);
        }
    }
    found.log_probs[..count].iter_mut().for_each(|x| *x -= all);
    found.count = u32::try_from(count).expect("a few");
    found
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(Launch {
        tokens: p.tokens as usize,
        scratch: p.vocab as usize * size_of::<f32>(),
        ..request.alone::<Logs>()
    })
}

macro_rules! case {
    ($name:literal, $vocab:literal, $tokens:literal/$live:literal, $wanted:literal) => {
        Case {
            name: $name,
            tokens: $tokens,
            live: $live,
            sequence: 1,
            logits: LogitRows::All,
            emit: |b| b.pick_full($vocab, SamplerKind::DEFAULT),
            sampler: |s| s.log_probs = $wanted,
            ..PLAIN
        }
    };
}

/// Nobody asks, fewer than have room, many, rows; runners draw ids below 50.
pub(super) const CASES: &[Case] = &[
    case!("nobody asks", 101, 1/1, 0),
    case!("as many as tokens", 50, 1/1, 1),
    case!("many", 5003, 1/1, 1),
    case!("rows", 131, 5/4, 1),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn found(x: &[f32], id: u32) -> LogProbs {
        log_probs(x, id, &mut vec![0.0; x.len()])
    }

    #[test]
    fn the_largest_in_their_order_the_lowest_of_equals_first() {
        let third = -(3f32.ln());
        let few = found(&[5.0, f32::NAN, 5.0, f32::NEG_INFINITY, 5.0], 2);
        assert_eq!((few.token, few.count), (2, 4));
        assert_eq!(few.tokens[..4], [0, 2, 4, 3]);
        assert!((few.log_prob - third).abs() < 1e-6);
        assert!((few.log_probs[2] - third).abs() < 1e-6);
        assert_eq!(few.log_probs[3], f32::NEG_INFINITY);

        let one = found(&[-7.0], 0);
        assert_eq!((one.count, one.tokens[0], one.log_prob), (1, 0, 0.0));

        let many: Vec<f32> = (0..1000u16).map(|i| f32::from(i % 100)).collect();
        let many = found(&many, 0);
        let wanted: Vec<u32> = (0..10).flat_map(|i| [100 * i + 99]).collect();
        assert_eq!(many.tokens[..10], wanted);
        let wanted: Vec<u32> = (0..10).flat_map(|i| [100 * i + 98]).collect();
        assert_eq!(many.tokens[10..], wanted);
    }
}
