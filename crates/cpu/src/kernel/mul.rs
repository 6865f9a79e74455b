//! `y[t, i] *= w[i mod len]`

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::operands::mul::AT;
use tabla_core::op::params::mul::Params;

struct Mul;

impl Kernel for Mul {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let (dim, len) = (p.dim as usize, p.len as usize);
        let w = &args.f32s(AT.w)[..len];
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            let y = y.unit(t, dim);
            if let [factor] = w {
                y.iter_mut().for_each(|y| *y *= factor);
                continue;
            }
            for y in y.chunks_exact_mut(len) {
                for (y, w) in y.iter_mut().zip(w) {
                    *y *= w;
                }
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let launch = request.launch::<Mul>(Split::Rows(1), p.tokens);
    Ok(launch.of_elements(p.tokens as usize * p.dim as usize))
}
