//! `y[i] = -inf` outside the smallest set of the largest whose softmax sums to `top_p`

use super::{Launch, PLAIN, Request};
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::memory::Args;
use crate::exec::cpu::simd::{Kernel, Simd, math};
use crate::op::shaders::top_p::Params;

/// Bins by distance from the largest, and how many of them make a unit of logits.
const BINS: usize = 2048;
const BINS_PER_UNIT: f32 = 64.0;

struct TopP;

impl Kernel for TopP {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let top_p = args.state(1).top_p;
        if top_p >= 1.0 {
            return;
        }
        let mut y = args.open::<f32>(0);
        let y = &mut y.whole()[..p.vocab as usize];
        let mut scratch = args.open::<f32>(2);
        let (bins, members) = scratch.whole().split_at_mut(BINS);
        if let Some(threshold) = threshold(y, top_p, bins, members) {
            for y in y {
                *y = if *y < threshold { f32::NEG_INFINITY } else { *y };
            }
        }
    }
}

/// The smallest number that stays. Masses are summed per bin first, and only the bin in which
/// the sum reaches `top_p` is sorted.
#[inline(always)]
fn threshold(y: &[f32], top_p: f32, bins: &mut [f32], members: &mut [f32]) -> Option<f32> {
    let max = math::max(y);
    if !max.is_finite() {
        return None;
    }
    bins.fill(0.0);
    for y in y.iter().filter(|y| **y > f32::NEG_INFINITY) {
        bins[bin(max - y)] += math::exp(y - max);
    }
    let target = top_p * bins.iter().sum::<f32>();
    let mut mass = 0.0;
    let crossing = bins.iter().position(|bin| {
        let reached = mass + bin >= target && *bin > 0.0;
        if !reached {
            mass += bin;
        }
        reached
    })?;
    let mut count = 0;
    for y in y.iter().filter(|y| **y > f32::NEG_INFINITY) {
        if bin(max - y) == crossing {
            members[count] = *y;
            count += 1;
        }
    }
    let members = &mut members[..count];
    members.sort_unstable_by(|a, b| b.total_cmp(a));
    for y in members.iter() {
        mass += math::exp(y - max);
        if mass >= target {
            return Some(*y);
        }
    }
    // The bin reached the target when it was summed in another order.
    members.last().copied()
}

#[inline(always)]
fn bin(distance: f32) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from f32 saturates"
    )]
    let bin = (distance * BINS_PER_UNIT) as usize;
    bin.min(BINS - 1)
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(Launch {
        scratch: (BINS + p.vocab as usize) * size_of::<f32>(),
        ..request.alone::<TopP>()
    })
}

macro_rules! case {
    ($name:literal, $vocab:literal, $p:literal) => {
        Case {
            name: $name,
            emit: |b| b.pick_sampled($vocab),
            state: |state| state.top_p = $p,
            tolerance: 0.0,
            ..PLAIN
        }
    };
}

/// Off, one that always stays, most of the mass.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, 0.5),
    case!("off", 37, 1.0),
    case!("the largest", 37, 0.0),
    case!("half", 131, 0.5),
    case!("most", 5003, 0.95),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_is_that_of_sorting() {
        let y: Vec<f32> = (0..1000u32)
            .map(|i| ((i * 7919) % 1000) as f32 * 0.0113)
            .collect();
        let mut sorted = y.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let total: f64 = sorted.iter().map(|y| f64::from(*y).exp()).sum();
        let (mut bins, mut members) = (vec![0.0; BINS], vec![0.0; y.len()]);
        for p in [0.0, 0.1, 0.5, 0.9, 0.99] {
            let mut mass = 0.0;
            let wanted = sorted.iter().find(|y| {
                mass += f64::from(**y).exp();
                mass >= f64::from(p) * total
            });
            let found = threshold(&y, p, &mut bins, &mut members);
            assert_eq!(found, wanted.copied(), "{p}");
        }
        let infinite = [f32::NEG_INFINITY; 4];
        assert_eq!(threshold(&infinite, 0.5, &mut bins, &mut members), None);
    }
}
