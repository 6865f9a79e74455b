//! Samplers that process whole rows of logits.

use super::filter;
use super::filter::{BINS, Filter, Ranking, RowContext, by_size, mask_above, mask_below};
use super::softmax::{Softmax, sum};
use crate::kernel::{Launch, Link, Request};
use crate::simd::{Simd, math};
use std::f32::consts::LN_2;
use tabla_core::error::Result;
use tabla_core::exec::philox::{chance, philox};
use tabla_core::op::kind;

macro_rules! links {
    ($($op:ident),+) => { $(
        impl Link for kind::$op {
            fn link(request: &Request<'_>) -> Result<Launch> {
                Ok(filter::link::<Self>(request))
            }
        }
    )+ };
}
links!(
    TopNSigma,
    TopK,
    Typical,
    TopP,
    MinP,
    Xtc,
    DynamicTemper,
    Mirostat
);

/// `y[t, i] = -inf` where `y[t, i] < max(y[t, :]) - top_n_sigma * sigma(y[t, :])`
impl Filter for kind::TopNSigma {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn filter<S: Simd>(
        _: S,
        RowContext { sampler, .. }: RowContext<'_>,
        y: &mut [f32],
        _: &mut [f32],
    ) {
        let n = sampler.top_n_sigma;
        if n > 0.0 {
            mask_below(y, math::max(y) - n * sigma(y));
        }
    }
}

/// Standard deviation of the numbers above -inf.
#[inline(always)]
pub fn sigma(y: &[f32]) -> f32 {
    let over = |y: f32, of: f32| if y > f32::NEG_INFINITY { of } else { 0.0 };
    let count = sum(y, |y| over(y, 1.0));
    let mean = sum(y, |y| over(y, y)) / count;
    (sum(y, |y| over(y, (y - mean) * (y - mean))) / count).sqrt()
}

/// `y[t, i] = -inf` except for the `top_k` largest; ties with the last one are kept
impl Filter for kind::TopK {
    const SCRATCH: Option<usize> = Some(0);

    #[inline(always)]
    fn filter<S: Simd>(
        _: S,
        RowContext { sampler, .. }: RowContext<'_>,
        y: &mut [f32],
        scratch: &mut [f32],
    ) {
        let k = sampler.top_k as usize;
        if k == 0 || k >= y.len() {
            return;
        }
        if let Some(threshold) = threshold(y, k, scratch) {
            mask_below(y, threshold);
        }
    }
}

/// Returns the `k`-th largest of `y`, ignoring NaN; `None` if there are fewer numbers.
///
/// The `k`-th largest of the maxima of chunks is a lower bound: `k` chunks have a number at least
/// as large. Few numbers reach it, and only these are ordered.
#[inline(always)]
pub fn threshold(y: &[f32], k: usize, scratch: &mut [f32]) -> Option<f32> {
    let chunk_len = (y.len() / (8 * k)).clamp(1, 256);
    let chunks = y.len().div_ceil(chunk_len);
    for (max, y) in scratch.iter_mut().zip(y.chunks(chunk_len)) {
        *max = math::max(y);
    }
    let bound = kth(&mut scratch[..chunks], k)?;
    let mut count = 0;
    for y in y.chunks(chunk_len) {
        if math::max(y) >= bound {
            for y in y.iter().filter(|y| **y >= bound) {
                scratch[count] = *y;
                count += 1;
            }
        }
    }
    kth(&mut scratch[..count], k)
}

fn kth(x: &mut [f32], k: usize) -> Option<f32> {
    if x.len() < k {
        return None;
    }
    let (_, kth, _) = x.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    Some(*kth)
}

/// `y[t, i] = -inf` outside the smallest set of the most typical tokens whose probabilities sum to
/// `typical_p`
impl Filter for kind::Typical {
    const SCRATCH: Option<usize> = Some(BINS);

    #[inline(always)]
    fn filter<S: Simd>(
        _: S,
        RowContext { sampler, .. }: RowContext<'_>,
        y: &mut [f32],
        scratch: &mut [f32],
    ) {
        if sampler.typical_p >= 1.0 {
            return;
        }
        let Some(softmax) = Softmax::of(y) else {
            return;
        };
        // Distance from the peak of a token with typical probability.
        let typical = softmax.entropy(y) - math::ln(softmax.total);
        let ranking = Ranking {
            best: 0.0,
            rank: |y: f32| -((softmax.peak - y) - typical).abs(),
            weight: |y| softmax.weight(y),
        };
        if let Some(least) = ranking.cutoff(y, sampler.typical_p, scratch) {
            for y in y {
                *y = if (ranking.rank)(*y) < least {
                    f32::NEG_INFINITY
                } else {
                    *y
                };
            }
        }
    }
}

/// `y[t, i] = -inf` outside the smallest set of the largest logits whose probabilities sum to
/// `top_p`
impl Filter for kind::TopP {
    const SCRATCH: Option<usize> = Some(BINS);

    #[inline(always)]
    fn filter<S: Simd>(
        _: S,
        RowContext { sampler, .. }: RowContext<'_>,
        y: &mut [f32],
        scratch: &mut [f32],
    ) {
        if sampler.top_p >= 1.0 {
            return;
        }
        let max = math::max(y);
        if !max.is_finite() {
            return;
        }
        if let Some(threshold) = by_size(max).cutoff(y, sampler.top_p, scratch) {
            mask_below(y, threshold);
        }
    }
}

/// `y[t, i] = -inf` where `softmax(y[t, :])[i] < min_p * max(softmax(y[t, :]))`
impl Filter for kind::MinP {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn filter<S: Simd>(
        _: S,
        RowContext { sampler, .. }: RowContext<'_>,
        y: &mut [f32],
        _: &mut [f32],
    ) {
        if sampler.min_p > 0.0 {
            mask_below(y, math::max(y) + math::ln(sampler.min_p));
        }
    }
}

/// `y[t, i] = -inf` above the smallest logit whose probability is at least `xtc_threshold`, with
/// probability `xtc_probability`
impl Filter for kind::Xtc {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn filter<S: Simd>(
        _: S,
        RowContext { row, sampler }: RowContext<'_>,
        y: &mut [f32],
        _: &mut [f32],
    ) {
        let key = [sampler.seed_lo, sampler.seed_hi];
        let [word, ..] = philox(key, [0, row.position.wrapping_add(1), 1, 0]);
        if chance(word) >= sampler.xtc_probability {
            return;
        }
        let Some(softmax) = Softmax::of(y) else {
            return;
        };
        let least_weight = sampler.xtc_threshold * softmax.total;
        let top = y.iter().copied().filter(|y| *y <= softmax.peak);
        let top = top.filter(|y| softmax.weight(*y) >= least_weight);
        mask_above(y, top.fold(f32::INFINITY, f32::min));
    }
}

/// `y[t, i] /= low + (high - low) * (entropy / ln count)^exponent`, if the temperature has a range
impl Filter for kind::DynamicTemper {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn filter<S: Simd>(
        _: S,
        RowContext { sampler, .. }: RowContext<'_>,
        y: &mut [f32],
        _: &mut [f32],
    ) {
        let (middle, range) = (sampler.temperature, sampler.dynatemp_range);
        if middle <= 0.0 || range <= 0.0 {
            return;
        }
        let some = |y: f32| if y > f32::NEG_INFINITY { 1.0 } else { 0.0 };
        let count = sum(y, some);
        // With one candidate, the temperature has no effect.
        if count <= 1.0 {
            return;
        }
        let Some(softmax) = Softmax::of(y) else {
            return;
        };
        let part = (softmax.entropy(y) / math::ln(count)).clamp(1e-30, 1.0);
        let low = (middle - range).max(0.0);
        let power = math::exp(sampler.dynatemp_exponent * math::ln(part));
        let temperature = (low + (middle + range - low) * power).max(COLDEST);
        for y in y {
            *y /= temperature;
        }
    }
}

/// Minimum temperature; quotients stay finite.
const COLDEST: f32 = 1e-20;

/// `y[t, i] = -inf` where `-log2(softmax(y[t, :])[i]) > mu`, except for the largest
impl Filter for kind::Mirostat {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn filter<S: Simd>(
        _: S,
        RowContext { sampler, .. }: RowContext<'_>,
        y: &mut [f32],
        _: &mut [f32],
    ) {
        if sampler.mirostat_tau <= 0.0 {
            return;
        }
        if let Some(softmax) = Softmax::of(y) {
            let least = softmax.log_sum() - sampler.mirostat_mu * LN_2;
            mask_below(y, softmax.peak.min(least));
        }
    }
}
