//! `y[t, i] = -inf` where `y[t, i] < max(y[t, :]) - top_n_sigma * sigma(y[t, :])`

use super::filter::{self, Filter, How, filter_case, keep_from};
use super::softmax::sum;
use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::simd::{Simd, math};
use tabla_core::op::builder::LogitRows;
use tabla_core::op::sampler::SamplerKind;

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
fn sigma(y: &[f32]) -> f32 {
    let over = |y: f32, of: f32| if y > f32::NEG_INFINITY { of } else { 0.0 };
    let count = sum(y, |y| over(y, 1.0));
    let mean = sum(y, |y| over(y, y)) / count;
    (sum(y, |y| over(y, (y - mean) * (y - mean))) / count).sqrt()
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    Ok(filter::link::<TopNSigma>(request))
}

/// Off, narrow, wide, rows.
pub(super) const CASES: &[Case] = &[
    filter_case!("one", 1, |s| s.top_n_sigma = 1.0),
    filter_case!("off", 37, |s| s.top_n_sigma = 0.0),
    filter_case!("narrow", 131, |s| s.top_n_sigma = 0.1),
    filter_case!("some", 5003, |s| s.top_n_sigma = 1.0),
    filter_case!("nearly all", 1009, |s| s.top_n_sigma = 3.0),
    filter_case!("rows", 131, 5/4, |s| s.top_n_sigma = 1.3),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_does_not_count() {
        let y = [1.0, f32::NAN, 3.0, f32::NEG_INFINITY];
        assert_eq!(sigma(&y), 1.0);
    }
}
