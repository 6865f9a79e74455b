//! `y[t, i] += sum_s w[t, s] x[t, s, i]`

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::op::operands::combine::AT;
use tabla_core::op::params::combine::Params;

struct Combine;

impl Kernel for Combine {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (k, dim) = (p.k as usize, p.dim as usize);
        let (x, w) = (args.f32s(AT.x), args.f32s(AT.w));
        let range = args.range();
        let mut y = args.open::<f32>(AT.y);
        let mut y = y.units(1);
        let mut at = range.start;
        while at < range.end {
            let (t, i) = (at / dim, at % dim);
            let count = (dim - i).min(range.end - at);
            let (part, rest) = y.split_at_mut(count);
            for s in t * k..(t + 1) * k {
                for (y, x) in part.iter_mut().zip(&x[s * dim + i..]) {
                    *y += w[s] * x;
                }
            }
            (y, at) = (rest, at + count);
        }
    }
}

pub(super) fn link(request: &Request<'_>) -> Launch {
    let p: Params = request.params();
    let dim = p.dim as usize;
    let launch = request.launch::<Combine>(Split::Rows(dim), p.tokens);
    launch.single_thread_if_small(p.tokens as usize * dim * p.k as usize)
}
