//! `ids[t, :]` = the k largest of `softmax(x[t, :])`, lowest id first on ties;
//! `y[t, s] = softmax(x[t, :])[ids[t, s]]`, divided by their sum if `normalize`

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd, math};
use crate::work::Split;
use tabla_core::op::operands::route::AT;
use tabla_core::op::params::route::Params;

struct Route;

impl Kernel for Route {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (experts, k) = (p.experts as usize, p.k as usize);
        let x = args.f32s(AT.x);
        let mut ids = args.open::<u32>(AT.ids);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let x = &x[t * experts..][..experts];
            let (ids, y) = (ids.unit(t, k), y.unit(t, k));
            largest(x, ids);
            let best = x[ids[0] as usize];
            for (y, id) in y.iter_mut().zip(&*ids) {
                *y = math::exp(x[*id as usize] - best);
            }
            let sum = if p.normalize != 0 {
                math::sum(y, |y| y)
            } else {
                math::sum(x, |x| math::exp(x - best))
            };
            y.iter_mut().for_each(|y| *y /= sum);
        }
    }
}

/// Returns the indices of the largest numbers in descending order, the lowest index first on ties,
/// NaN last.
#[inline(always)]
pub fn largest(x: &[f32], ids: &mut [u32]) {
    let ranks = || x.iter().zip(0u32..).map(|(x, id)| rank(*x, id));
    let mut last = u64::MAX;
    for id in ids {
        last = ranks().filter(|rank| *rank < last).max().unwrap_or(0);
        let [low, ..] = bytemuck::cast::<u64, [u32; 2]>(last.to_le());
        *id = !low;
    }
}

/// Integer that orders like the pair (number, id descending); unique per id.
#[inline(always)]
fn rank(x: f32, id: u32) -> u64 {
    // Maps -0 to 0.
    let bits = (x + 0.0).to_bits();
    let key = match bits >> 31 {
        _ if x.is_nan() => 0,
        0 => bits | 0x8000_0000,
        _ => !bits,
    };
    u64::from(key) << 32 | u64::from(!id)
}

pub(super) fn link(request: &Request<'_>) -> Launch {
    let p: Params = request.params();
    let launch = request.launch::<Route>(Split::Rows(1), p.tokens);
    launch.single_thread_if_small(p.tokens as usize * p.experts as usize * p.k as usize)
}
