//! `y[t, r] += W[r, :] . x[t, :]`

use super::product::{self, Many, mat_cases};
use super::{Launch, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use tabla_core::op::builder::{Builder, W, X};
use tabla_core::op::params::gemm::Params;

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    product::link::<Many, true>(request, [p.tokens, p.rows, p.cols])
}

/// Odd shapes in every storage type.
pub(super) const CASES: &[Case] = mat_cases!(37, 35, emit);

fn emit(b: &mut Builder<'_>, w: W, x: X, y: X) {
    b.mat_add(w, x, y);
}
