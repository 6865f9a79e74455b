//! `y[t, i] *= scales[sequence[t], adapter]`; 0 if the scale is 0
//!
//! A unit is a row.

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::op::operands::adapter_scale::AT;
use tabla_core::op::params::adapter_scale::Params;

struct AdapterScale;

impl Kernel for AdapterScale {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [dim, adapters, adapter] = [p.dim, p.adapters, p.adapter].map(|n| n as usize);
        let (scales, rows) = (args.f32s(AT.scales), args.rows(AT.state));
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let scale = scales[rows[t].sequence as usize * adapters + adapter];
            let y = y.unit(t, dim);
            if scale == 0.0 {
                // 0 times infinity is NaN.
                y.fill(0.0);
            } else {
                y.iter_mut().for_each(|y| *y *= scale);
            }
        }
    }
}

pub(super) fn link(request: &Request<'_>) -> Launch {
    let p: Params = request.params();
    request.by_row::<AdapterScale>(p.tokens, p.dim)
}
