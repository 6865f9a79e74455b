//! `y[t, i] *= scales[sequence[t], adapter]`; 0 if the scale is 0
//!
//! A unit is a row.

use crate::kernel::{Launch, Link, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::error::Result;
use tabla_core::op::kind;
use tabla_core::op::operands::adapter_scale::AT;
use tabla_core::op::params::adapter_scale::Params;

impl Kernel for kind::AdapterScale {
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

impl Link for kind::AdapterScale {
    fn link(request: &Request<'_>) -> Result<Launch> {
        let p: Params = request.params();
        Ok(request.by_row::<Self>(p.tokens, p.dim))
    }
}
