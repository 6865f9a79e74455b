//! `y[t, i] = -inf` where fewer than all but the `top_k` largest are smaller; ties with the last one stay

use super::filter::{self, Filter, How, filter_case, keep_from};
use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::simd::{Simd, math};
use tabla_core::op::builder::LogitRows;
use tabla_core::op::sampler::SamplerKind;

struct TopK;

impl Filter for TopK {
    const SCRATCH: Option<usize> = Some(0);

    #[inline(always)]
    fn filter<S: Simd>(_: S, How { sampler, .. }: How<'_>, y: &mut [f32], scratch: &mut [f32]) {
        let k = sampler.top_k as usize;
        if k == 0 || k >= y.len() {
            return;
        }
        if let Some(threshold) = threshold(y, k, scratch) {
            keep_from(y, threshold);
        }
    }
}

/// The `k`-th largest of `y`, NaN aside; `None` where there are fewer numbers.
///
/// The `k`-th largest of the maxima of stretches is a bound: `k` stretches have a number that is
/// as large. Few numbers reach it, and only these are ordered.
#[inline(always)]
pub(super) fn threshold(y: &[f32], k: usize, scratch: &mut [f32]) -> Option<f32> {
    let stretch = (y.len() / (8 * k)).clamp(1, 256);
    let stretches = y.len().div_ceil(stretch);
    for (max, y) in scratch.iter_mut().zip(y.chunks(stretch)) {
        *max = math::max(y);
    }
    let bound = kth(&mut scratch[..stretches], k)?;
    let mut found = 0;
    for y in y.chunks(stretch) {
        if math::max(y) >= bound {
            for y in y.iter().filter(|y| **y >= bound) {
                scratch[found] = *y;
                found += 1;
            }
        }
    }
    kth(&mut scratch[..found], k)
}

fn kth(x: &mut [f32], k: usize) -> Option<f32> {
    if x.len() < k {
        return None;
    }
    let (_, kth, _) = x.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    Some(*kth)
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    Ok(filter::link::<TopK>(request))
}

/// Off, one, nearly all, more than all, rows.
pub(super) const CASES: &[Case] = &[
    filter_case!("one", 1, |s| s.top_k = 1),
    filter_case!("off", 37, |s| s.top_k = 0),
    filter_case!("the largest", 37, |s| s.top_k = 1),
    filter_case!("all but one", 131, |s| s.top_k = 130),
    filter_case!("more than all", 131, |s| s.top_k = 500),
    filter_case!("forty", 5003, |s| s.top_k = 40),
    filter_case!("half", 1009, |s| s.top_k = 500),
    filter_case!("rows", 131, 5/4, |s| s.top_k = 7),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_that_of_sorting() {
        let mut seed = 1u32;
        let y: Vec<f32> = (0..3001)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Few distinct numbers, so that there are ties.
                (seed >> 22) as f32
            })
            .collect();
        let mut sorted = y.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let mut scratch = vec![0.0; y.len()];
        for k in [1, 2, 3, 39, 40, 41, 300, 1500, 3000] {
            assert_eq!(threshold(&y, k, &mut scratch), Some(sorted[k - 1]), "{k}");
        }
    }
}
