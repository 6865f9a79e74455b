//! `y[t, i] = -inf` where `-log2(softmax(y[t, :])[i]) > mu`, but for the largest

use super::filter::{self, Filter, How, filter_case, keep_from};
use super::softmax::Softmax;
use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::simd::Simd;
use tabla_core::op::builder::LogitRows;
use tabla_core::op::sampler::SamplerKind;
use std::f32::consts::LN_2;

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

/// Off, only the largest, some, all, rows.
pub(super) const CASES: &[Case] = &[
    filter_case!("one", 1, |s| (s.mirostat_tau, s.mirostat_mu) = (5.0, 10.0)),
    filter_case!("off", 37, |s| (s.mirostat_tau, s.mirostat_mu) = (0.0, 1.0)),
    filter_case!("the largest", 37, |s| (s.mirostat_tau, s.mirostat_mu) = (5.0, -3.0)),
    filter_case!("some", 5003, |s| (s.mirostat_tau, s.mirostat_mu) = (5.0, 12.0)),
    filter_case!("all", 131, |s| (s.mirostat_tau, s.mirostat_mu) = (5.0, 40.0)),
    filter_case!("rows", 131, 5/4, |s| (s.mirostat_tau, s.mirostat_mu) = (5.0, 7.0)),
];
