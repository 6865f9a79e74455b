//! `y[t, r] += (W[r, :] . q[t, :]) d[t] scale`, the digits of a ternary W

use super::bit_mat::{digit_cases, link_as};
use super::{Launch, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use tabla_core::op::builder::{Builder, W, X};

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    link_as::<true>(request)
}

/// All shapes.
pub(super) const CASES: &[Case] = digit_cases!(emit);

fn emit(b: &mut Builder<'_>, w: W, x: X, y: X) {
    b.mat_add(w, x, y);
}
