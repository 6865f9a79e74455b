//! `y[t, r] += (W[r, :] . q[t, :]) d[t] scale` with a ternary W

use super::bit_mat::link_as;
use super::{Launch, Request};
use tabla_core::error::Result;

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    link_as::<true>(request)
}
