//! `y[t, i] = -inf` outside the smallest set of the largest whose softmax sums to `top_p`

use super::filter::{self, BINS, Filter, How, by_size, filter_case, keep_from};
use super::{Launch, PLAIN, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use crate::simd::{Simd, math};
use tabla_core::op::builder::LogitRows;
use tabla_core::op::sampler::SamplerKind;

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

/// Off, one that always stays, most of the mass, rows.
pub(super) const CASES: &[Case] = &[
    filter_case!("one", 1, |s| s.top_p = 0.5),
    filter_case!("off", 37, |s| s.top_p = 1.0),
    filter_case!("the largest", 37, |s| s.top_p = 0.0),
    filter_case!("half", 131, |s| s.top_p = 0.5),
    filter_case!("most", 5003, |s| s.top_p = 0.95),
    filter_case!("rows", 131, 5/4, |s| s.top_p = 0.7),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_is_that_of_sorting() {
        let y: Vec<f32> = (0..1000u32)
            .map(|i| ((i * 7919) % 1000) as f32 * 0.0113)
            .collect();
        let mut sorted = y.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let total: f64 = sorted.iter().map(|y| f64::from(*y).exp()).sum();
        let mut scratch = vec![0.0; BINS + y.len()];
        for p in [0.0, 0.1, 0.5, 0.9, 0.99] {
            let mut mass = 0.0;
            let wanted = sorted.iter().find(|y| {
                mass += f64::from(**y).exp();
                mass >= f64::from(p) * total
            });
            let found = by_size(sorted[0]).least(&y, p, &mut scratch);
            assert_eq!(found, wanted.copied(), "{p}");
        }
        let infinite = [f32::NEG_INFINITY; 4];
        assert_eq!(by_size(0.0).least(&infinite, 0.5, &mut scratch), None);
    }
}
