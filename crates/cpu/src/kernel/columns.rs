//! `y[t, i] = x[t, offset + i]`

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use crate::work::Split;
use tabla_core::error::Result;
use tabla_core::op::operands::columns::AT;
use tabla_core::op::params::columns::Params;

struct Columns;

impl Kernel for Columns {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let [width, offset, dim] = [p.width, p.offset, p.dim].map(|n| n as usize);
        let x = args.f32s(AT.x);
        let mut y = args.open::<f32>(AT.y);
        for t in args.range() {
            y.unit(t, dim)
                .copy_from_slice(&x[t * width + offset..][..dim]);
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let launch = request.launch::<Columns>(Split::Rows(1), p.tokens);
    Ok(launch.of_elements(p.tokens as usize * p.dim as usize))
}
