//! `y[t, i] = -inf` where `softmax(y[t, :])[i] < min_p * max(softmax(y[t, :]))`

use super::filter::{self, Filter, How, filter_case, keep_from};
use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::simd::{Simd, math};
use tabla_core::op::builder::LogitRows;
use tabla_core::op::sampler::SamplerKind;

struct MinP;

impl Filter for MinP {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn filter<S: Simd>(_: S, How { sampler, .. }: How<'_>, y: &mut [f32], _: &mut [f32]) {
        if sampler.min_p > 0.0 {
            keep_from(y, math::max(y) + math::ln(sampler.min_p));
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    Ok(filter::link::<MinP>(request))
}

/// Off, some, only the largest, rows.
pub(super) const CASES: &[Case] = &[
    filter_case!("one", 1, |s| s.min_p = 0.5),
    filter_case!("off", 37, |s| s.min_p = 0.0),
    filter_case!("some", 131, |s| s.min_p = 0.3),
    filter_case!("the largest", 5003, |s| s.min_p = 1.0),
    filter_case!("rows", 131, 5/4, |s| s.min_p = 0.3),
];
