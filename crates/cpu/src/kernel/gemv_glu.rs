//! `y[r] = W[r, :] . (act(gate) * up), one token`

use super::fused::{fused_cases, link_glu};
use super::{Launch, Request};
use tabla_core::error::Result;
use tabla_core::exec::case::Case;
use tabla_core::op::builder::{Activation, Builder, W, X};

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    link_glu::<false>(request)
}

/// Some shapes and storage types.
pub(super) const CASES: &[Case] = fused_cases!(emit);

fn emit(b: &mut Builder<'_>, w: W, _: X, cols: u32) {
    let [gate, up] = ["gate", "up"].map(|name| b.input(name, cols));
    let f = b.glu(Activation::Silu, gate, up);
    b.mat("y", w, f);
}
