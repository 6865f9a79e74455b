//! `y[t, i] /= low + (high - low) * (entropy / ln count)^exponent`, where the temperature has a range

use super::filter::{self, Filter, How};
use super::softmax::{Softmax, sum};
use super::{Launch, Request};
use crate::simd::{Simd, math};
use tabla_core::error::Result;

struct DynamicTemper;

impl Filter for DynamicTemper {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn filter<S: Simd>(_: S, How { sampler, .. }: How<'_>, y: &mut [f32], _: &mut [f32]) {
        let (middle, range) = (sampler.temperature, sampler.dynatemp_range);
        if middle <= 0.0 || range <= 0.0 {
            return;
        }
        let some = |y: f32| if y > f32::NEG_INFINITY { 1.0 } else { 0.0 };
        let count = sum(y, some);
        // One number alone is picked at any temperature.
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

/// What is divided by it stays finite.
const COLDEST: f32 = 1e-20;

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    Ok(filter::link::<DynamicTemper>(request))
}
