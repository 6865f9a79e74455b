//! `y[t, i] += sum_s w[t, s] x[t, s, i]`

use crate::kernel::elementwise::loops::{Extent, Loop};
use crate::memory::Args;
use tabla_core::op::kind;
use tabla_core::op::operands::combine::AT;
use tabla_core::op::params::combine::Params;

impl Loop for kind::Combine {
    /// A unit is an element, the sum of `k` products.
    fn extent(p: &Params) -> Extent {
        Extent::groups([p.dim, p.k], p.tokens)
    }

    #[inline(always)]
    fn run(p: Params, mut args: Args<'_>) {
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
