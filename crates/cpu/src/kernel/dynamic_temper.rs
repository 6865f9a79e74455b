//! `y[t, i] /= low + (high - low) * (entropy / ln count)^exponent`, where the temperature has a range

use super::filter::{self, Filter, How, filter_case};
use super::softmax::{Softmax, sum};
use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::simd::{Simd, math};
use tabla_core::op::builder::LogitRows;
use tabla_core::op::sampler::SamplerKind;

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

macro_rules! case {
    ($name:literal, $vocab:literal, $($rows:literal / $live:literal,)? [$middle:literal, $range:literal, $exponent:literal]) => {
        Case {
            tolerance: 1e-5,
            ..filter_case!($name, $vocab, $($rows/$live,)? |s| {
                (s.temperature, s.dynatemp_range) = ($middle, $range);
                s.dynatemp_exponent = $exponent;
            })
        }
    };
}

/// Off, cold, hot, exponents, rows.
pub(super) const CASES: &[Case] = &[
    case!("one", 1, [0.5, 0.2, 1.0]),
    case!("off", 37, [0.7, 0.0, 1.0]),
    case!("the largest, always", 37, [0.0, 0.5, 1.0]),
    case!("down to nothing", 131, [0.5, 2.0, 1.0]),
    case!("hot", 5003, [1.5, 1.0, 1.0]),
    case!("by the square", 1009, [0.8, 0.5, 2.0]),
    case!("by the root", 131, [0.8, 0.5, 0.5]),
    case!("rows", 131, 5/4, [1.0, 0.7, 1.0]),
];
