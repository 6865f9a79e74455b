//! `y[t, i] = -inf` outside the smallest set of the largest whose softmax sums to `top_p`

use super::filter::{self, BINS, Filter, How, by_size, keep_from};
use super::{Launch, Request};
use crate::simd::{Simd, math};
use tabla_core::error::Result;

struct TopP;

impl Filter for TopP {
    const SCRATCH: Option<usize> = Some(BINS);

    #[inline(always)]
    fn filter<S: Simd>(_: S, How { sampler, .. }: How<'_>, y: &mut [f32], scratch: &mut [f32]) {
        if sampler.top_p >= 1.0 {
            return;
        }
        let max = math::max(y);
        if !max.is_finite() {
            return;
        }
        if let Some(threshold) = by_size(max).least(y, sampler.top_p, scratch) {
            keep_from(y, threshold);
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    Ok(filter::link::<TopP>(request))
}
