//! `y[t, i] = -inf` where `softmax(y[t, :])[i] < min_p * max(softmax(y[t, :]))`

use super::filter::{self, Filter, How, keep_from};
use super::{Launch, Request};
use crate::simd::{Simd, math};
use tabla_core::error::Result;

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
