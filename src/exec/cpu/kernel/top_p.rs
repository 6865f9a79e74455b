//! `y[t, i] = -inf` outside the smallest set of the largest whose softmax sums to `top_p`

use super::filter::{self, Filter, filter_case, keep_from};
use super::{Launch, PLAIN, Request};
use crate::error::Result;
use crate::exec::case::Case;
use crate::exec::cpu::simd::{Simd, math};
use crate::exec::state::Sampler;
use crate::op::builder::LogitRows;

/// Bins by distance from the largest, and how many of them make a unit of logits.
const BINS: usize = 2048;
const BINS_PER_UNIT: f32 = 64.0;

struct TopP;

impl Filter for TopP {
    const SCRATCH: Option<usize> = Some(BINS);

    #[inline(always)]
    fn filter<S: Simd>(_: S, sampler: &Sampler, y: &mut [f32], scratch: &mut [f32]) {
        if sampler.top_p >= 1.0 {
            return;
        }
        let (bins, members) = scratch.split_at_mut(BINS);
        if let Some(threshold) = threshold(y, sampler.top_p, bins, members) {
            keep_from(y, threshold);
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
    Ok(filter::link::<TopP>(request))
}

/// Off, one that always stays, most of the mass, rows.
pub(super) const CASES: &[Case] = &[
    filter_case!("one", 1, |s| s.top_p = 0.5),
    filter_case!("off", 37, |s| s.top_p = 1.0),
    filter_case!("the largest", 37, |s| s.top_p = 0.0),
    filter_case!("half", 131, |s| s.top_p = 0.5),
    filter_case!("most", 5003, |s| s.top_p = 0.95),
    filter_case!("rows", 131, 5/4, |s| s.top_p = 0.7),
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
