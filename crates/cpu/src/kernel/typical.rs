//! `y[t, i] = -inf` outside the smallest set of the most typical whose softmax sums to `typical_p`

use super::filter::{self, BINS, Filter, How, Ranking};
use super::softmax::Softmax;
use super::{Launch, Request};
use crate::simd::{Simd, math};
use tabla_core::error::Result;

struct Typical;

impl Filter for Typical {
    const SCRATCH: Option<usize> = Some(BINS);

    #[inline(always)]
    fn filter<S: Simd>(_: S, How { sampler, .. }: How<'_>, y: &mut [f32], scratch: &mut [f32]) {
        if sampler.typical_p >= 1.0 {
            return;
        }
        let Some(softmax) = Softmax::of(y) else {
            return;
        };
        // How far below the peak a token of typical probability lies.
        let typical = softmax.entropy(y) - math::ln(softmax.total);
        let ranking = Ranking {
            best: 0.0,
            rank: |y: f32| -((softmax.peak - y) - typical).abs(),
            weight: |y| softmax.weight(y),
        };
        if let Some(least) = ranking.least(y, sampler.typical_p, scratch) {
            for y in y {
                *y = if (ranking.rank)(*y) < least {
                    f32::NEG_INFINITY
                } else {
                    *y
                };
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    Ok(filter::link::<Typical>(request))
}
