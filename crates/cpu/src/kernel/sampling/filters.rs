//! Samplers that process whole rows of logits.

use super::filter;
use super::filter::{BINS, Filter, Parts, Ranking, RowContext, Threshold, by_size};
use super::softmax::{Softmax, sum};
use crate::kernel::{Launch, Link, Request};
use crate::simd::math;
use std::f32::consts::LN_2;
use tabla_core::error::Result;
use tabla_core::exec::philox::{chance, philox};
use tabla_core::op::kind;

macro_rules! links {
    ($frame:ident: $($op:ident),+) => { $(
        impl Link for kind::$op {
            fn link(request: &Request<'_>) -> Result<Launch> {
                Ok(filter::$frame::<Self>(request))
            }
        }
    )+ };
}
links!(threshold: TopNSigma, TopK, TopP, MinP, Mirostat);
links!(filter: Typical, Xtc, DynamicTemper);

/// `y[t, i] = -inf` where `y[t, i] < max(y[t, :]) - top_n_sigma * sigma(y[t, :])`
impl Threshold for kind::TopNSigma {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn least(
        RowContext { sampler, .. }: RowContext<'_>,
        parts: Parts<'_>,
        _: &mut [f32],
    ) -> Option<f32> {
        let n = sampler.top_n_sigma;
        (n > 0.0).then(|| parts.peak() - n * sigma(parts.live()))
    }
}

/// Standard deviation of the numbers above -inf.
#[inline(always)]
pub fn sigma<'a>(parts: impl Iterator<Item = &'a [f32]> + Clone) -> f32 {
    let over = |y: f32, of: f32| if y > f32::NEG_INFINITY { of } else { 0.0 };
    let count = sum(parts.clone(), |y| over(y, 1.0));
    let mean = sum(parts.clone(), |y| over(y, y)) / count;
    (sum(parts, |y| over(y, (y - mean) * (y - mean))) / count).sqrt()
}

/// `y[t, i] = -inf` except for the `top_k` largest; ties with the last one are kept
impl Threshold for kind::TopK {
    const SCRATCH: Option<usize> = Some(0);

    #[inline(always)]
    fn least(
        RowContext { sampler, .. }: RowContext<'_>,
        parts: Parts<'_>,
        scratch: &mut [f32],
    ) -> Option<f32> {
        let k = sampler.top_k as usize;
        if k == 0 || k >= parts.y.len() {
            return None;
        }
        let maxima = &mut scratch[..parts.maxima.len()];
        maxima.copy_from_slice(parts.maxima);
        let bound = kth(maxima, k).unwrap_or(f32::NEG_INFINITY);
        kth_from(bound, parts.from(bound), k, scratch)
    }
}

/// Returns the `k`-th largest of `y`, ignoring NaN; `None` if there are fewer numbers.
///
/// The `k`-th largest of the maxima of chunks is a lower bound: `k` chunks have a number at least
/// as large. Few numbers reach it, and only these are ordered.
#[inline(always)]
pub fn threshold(y: &[f32], k: usize, scratch: &mut [f32]) -> Option<f32> {
    let chunk_len = (y.len() / (8 * k)).clamp(1, 256);
    let chunks = y.chunks(chunk_len);
    let count = chunks.len();
    for (max, y) in scratch.iter_mut().zip(chunks.clone()) {
        *max = math::max(y);
    }
    let bound = kth(&mut scratch[..count], k)?;
    let chunks = chunks.filter(|y| math::max(y) >= bound);
    kth_from(bound, chunks, k, scratch)
}

/// Returns the `k`-th largest of the numbers of `parts` from a bound on.
#[inline(always)]
fn kth_from<'a>(
    bound: f32,
    parts: impl Iterator<Item = &'a [f32]>,
    k: usize,
    scratch: &mut [f32],
) -> Option<f32> {
    let mut count = 0;
    for y in parts {
        for y in y.iter().filter(|y| **y >= bound) {
            scratch[count] = *y;
            count += 1;
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
    fn change(
        RowContext { sampler, .. }: RowContext<'_>,
        parts: Parts<'_>,
        scratch: &mut [f32],
    ) -> Option<impl Fn(f32) -> f32 + use<>> {
        if sampler.typical_p >= 1.0 {
            return None;
        }
        let softmax = Softmax::of_parts(parts.peak(), parts.live())?;
        // Distance from the peak of a token with typical probability.
        let typical = softmax.entropy(parts.live()) - math::ln(softmax.total);
        let rank = move |y: f32| -((softmax.peak - y) - typical).abs();
        let ranking = Ranking {
            best: 0.0,
            rank,
            weight: |y| softmax.weight(y),
        };
        let least = ranking.cutoff(parts.live(), sampler.typical_p, scratch)?;
        Some(move |y| {
            if rank(y) < least {
                f32::NEG_INFINITY
            } else {
                y
            }
        })
    }
}

/// `y[t, i] = -inf` outside the smallest set of the largest logits whose probabilities sum to
/// `top_p`
impl Threshold for kind::TopP {
    const SCRATCH: Option<usize> = Some(BINS);

    #[inline(always)]
    fn least(
        RowContext { sampler, .. }: RowContext<'_>,
        parts: Parts<'_>,
        scratch: &mut [f32],
    ) -> Option<f32> {
        let peak = parts.peak();
        if sampler.top_p >= 1.0 || !peak.is_finite() {
            return None;
        }
        by_size(peak).cutoff(parts.live(), sampler.top_p, scratch)
    }
}

/// `y[t, i] = -inf` where `softmax(y[t, :])[i] < min_p * max(softmax(y[t, :]))`
impl Threshold for kind::MinP {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn least(
        RowContext { sampler, .. }: RowContext<'_>,
        parts: Parts<'_>,
        _: &mut [f32],
    ) -> Option<f32> {
        (sampler.min_p > 0.0).then(|| parts.peak() + math::ln(sampler.min_p))
    }
}

/// `y[t, i] = -inf` above the smallest logit whose probability is at least `xtc_threshold`, with
/// probability `xtc_probability`
impl Filter for kind::Xtc {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn change(
        RowContext { row, sampler }: RowContext<'_>,
        parts: Parts<'_>,
        _: &mut [f32],
    ) -> Option<impl Fn(f32) -> f32 + use<>> {
        let key = [sampler.seed_lo, sampler.seed_hi];
        let [word, ..] = philox(key, [0, row.position.wrapping_add(1), 1, 0]);
        if chance(word) >= sampler.xtc_probability {
            return None;
        }
        let softmax = Softmax::of_parts(parts.peak(), parts.live())?;
        let least_weight = sampler.xtc_threshold * softmax.total;
        let numbers = parts.live().flatten().copied();
        let numbers = numbers.filter(|y| *y > f32::NEG_INFINITY && *y <= softmax.peak);
        let top = numbers.filter(|y| softmax.weight(*y) >= least_weight);
        let last = top.fold(f32::INFINITY, f32::min);
        Some(move |y| if y > last { f32::NEG_INFINITY } else { y })
    }
}

/// `y[t, i] /= low + (high - low) * (entropy / ln count)^exponent`, if the temperature has a range
impl Filter for kind::DynamicTemper {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn change(
        RowContext { sampler, .. }: RowContext<'_>,
        parts: Parts<'_>,
        _: &mut [f32],
    ) -> Option<impl Fn(f32) -> f32 + use<>> {
        let (middle, range) = (sampler.temperature, sampler.dynatemp_range);
        if middle <= 0.0 || range <= 0.0 {
            return None;
        }
        let some = |y: f32| if y > f32::NEG_INFINITY { 1.0 } else { 0.0 };
        let count = sum(parts.live(), some);
        // With one candidate, the temperature has no effect.
        if count <= 1.0 {
            return None;
        }
        let softmax = Softmax::of_parts(parts.peak(), parts.live())?;
        let part = (softmax.entropy(parts.live()) / math::ln(count)).clamp(1e-30, 1.0);
        let low = (middle - range).max(0.0);
        let power = math::exp(sampler.dynatemp_exponent * math::ln(part));
        let temperature = (low + (middle + range - low) * power).max(COLDEST);
        Some(move |y| y / temperature)
    }
}

/// Minimum temperature; quotients stay finite.
const COLDEST: f32 = 1e-20;

/// `y[t, i] = -inf` where `-log2(softmax(y[t, :])[i]) > mu`, except for the largest
impl Threshold for kind::Mirostat {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn least(
        RowContext { sampler, .. }: RowContext<'_>,
        parts: Parts<'_>,
        _: &mut [f32],
    ) -> Option<f32> {
        if sampler.mirostat_tau <= 0.0 {
            return None;
        }
        let softmax = Softmax::of_parts(parts.peak(), parts.live())?;
        let least = softmax.log_sum() - sampler.mirostat_mu * LN_2;
        Some(softmax.peak.min(least))
    }
}
