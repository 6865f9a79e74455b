//! `y[r] += W[r, :] . (act(gate) * up), one token`

use super::fused::link_glu;
use super::{Launch, Request};
use tabla_core::error::Result;

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    link_glu::<true>(request)
}
