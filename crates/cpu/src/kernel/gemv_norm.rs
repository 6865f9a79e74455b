//! `y[r] = W[r, :] . (x / sqrt(mean(x^2) + eps) * n), one token`

use super::fused::{fused_cases, link_norm};
use super::{Launch, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use tabla_core::op::builder::{Builder, W, X};

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    link_norm(request)
}

/// Some shapes and storage types.
pub(super) const CASES: &[Case] = fused_cases!(emit);

fn emit(b: &mut Builder<'_>, w: W, _: X, cols: u32) {
    let n = b.vector("n", cols);
    let x = b.input("x", cols);
    let x = b.rms_norm(x, n, 1e-5);
    b.mat("y", w, x);
}
