//! `y[t, i] = -inf` where fewer than all but the `top_k` largest are smaller; ties with the last one stay

use super::filter::{self, Filter, How, keep_from};
use super::{Launch, Request};
use crate::simd::{Simd, math};
use tabla_core::error::Result;

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
pub fn threshold(y: &[f32], k: usize, scratch: &mut [f32]) -> Option<f32> {
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
