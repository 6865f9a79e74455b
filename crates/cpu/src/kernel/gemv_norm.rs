//! `y[r] = W[r, :] . (x / sqrt(mean(x^2) + eps) * n), one token`

use super::fused::link_norm;
use super::{Launch, Request};
use tabla_core::error::Result;

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    link_norm(request)
}
