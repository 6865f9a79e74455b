//! `y[t, i] = -inf` above the smallest number whose softmax is at least `xtc_threshold`, with probability
//! `xtc_probability`

use super::filter::{self, Filter, How, keep_to};
use super::softmax::Softmax;
use super::{Launch, Request};
use crate::simd::Simd;
use tabla_core::error::Result;
use tabla_core::exec::philox::{chance, philox};

struct Xtc;

impl Filter for Xtc {
    const SCRATCH: Option<usize> = None;

    #[inline(always)]
    fn filter<S: Simd>(_: S, How { row, sampler }: How<'_>, y: &mut [f32], _: &mut [f32]) {
        let key = [sampler.seed_lo, sampler.seed_hi];
        let [word, ..] = philox(key, [0, row.position.wrapping_add(1), 1, 0]);
        if chance(word) >= sampler.xtc_probability {
            return;
        }
        let Some(softmax) = Softmax::of(y) else {
            return;
        };
        let least_weight = sampler.xtc_threshold * softmax.total;
        let top = y.iter().copied().filter(|y| *y <= softmax.peak);
        let top = top.filter(|y| softmax.weight(*y) >= least_weight);
        keep_to(y, top.fold(f32::INFINITY, f32::min));
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    Ok(filter::link::<Xtc>(request))
}
