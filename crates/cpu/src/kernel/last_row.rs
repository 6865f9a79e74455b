//! `y[0, :] = x[live - 1, :]`

use super::{Launch, Request};
use crate::memory::Args;
use crate::simd::{Kernel, Simd};
use tabla_core::error::Result;
use tabla_core::op::operands::last_row::AT;
use tabla_core::op::params::last_row::Params;

struct LastRow;

impl Kernel for LastRow {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let p: Params = args.params();
        let dim = p.dim as usize;
        let x = &args.f32s(AT.x)[(args.live() - 1) * dim..][..dim];
        args.open::<f32>(AT.y).whole()[..dim].copy_from_slice(x);
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all operations link alike")]
pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    Ok(Launch {
        tokens: p.tokens as usize,
        ..request.alone::<LastRow>()
    })
}
