//! `y[r] = W[r, :] . x, one token`

use super::product::{self, One, mat_cases};
use super::{Launch, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use tabla_core::op::builder::{Builder, W, X};
use tabla_core::op::params::gemv::Params;

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    product::link::<One, false>(request, [1, p.rows, p.cols])
}

/// Odd shapes in every storage type.
pub(super) const CASES: &[Case] = mat_cases!(1, 1, emit);

fn emit(b: &mut Builder<'_>, w: W, x: X, _: X) {
    b.mat("y", w, x);
}
