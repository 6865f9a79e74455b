//! `y[t, i] = -inf` where `-log2(softmax(y[t, :])[i]) > mu`, but for the largest

use super::filter::{self, Filter, How, keep_from};
use super::softmax::Softmax;
use super::{Launch, Request};
use crate::simd::Simd;
use std::f32::consts::LN_2;
use tabla_core::error::Result;

struct Mirostat;

impl Filter for Mirostat {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn filter<S: Simd>(_: S, How { sampler, .. }: How<'_>, y: &mut [f32], _: &mut [f32]) {
        if sampler.mirostat_tau <= 0.0 {
            return;
        }
        if let Some(softmax) = Softmax::of(y) {
            let least = softmax.log_sum() - sampler.mirostat_mu * LN_2;
            keep_from(y, softmax.peak.min(least));
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    Ok(filter::link::<Mirostat>(request))
}
