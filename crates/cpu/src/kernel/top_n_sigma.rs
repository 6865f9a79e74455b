//! `y[t, i] = -inf` where `y[t, i] < max(y[t, :]) - top_n_sigma * sigma(y[t, :])`

use super::filter::{self, Filter, How, keep_from};
use super::softmax::sum;
use super::{Launch, Request};
use crate::simd::{Simd, math};
use tabla_core::error::Result;

struct TopNSigma;

impl Filter for TopNSigma {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn filter<S: Simd>(_: S, How { sampler, .. }: How<'_>, y: &mut [f32], _: &mut [f32]) {
        let n = sampler.top_n_sigma;
        if n > 0.0 {
            keep_from(y, math::max(y) - n * sigma(y));
        }
    }
}

/// The standard deviation of the numbers over -inf.
#[inline(always)]
pub fn sigma(y: &[f32]) -> f32 {
    let over = |y: f32, of: f32| if y > f32::NEG_INFINITY { of } else { 0.0 };
    let count = sum(y, |y| over(y, 1.0));
    let mean = sum(y, |y| over(y, y)) / count;
    (sum(y, |y| over(y, (y - mean) * (y - mean))) / count).sqrt()
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    Ok(filter::link::<TopNSigma>(request))
}
