//! `y[t, r] += (W[r, :] . q[t, :]) d[t] scale` with a ternary W

use super::bit_mat::link_as;
use crate::kernel::{Launch, Link, Request};
use tabla_core::error::Result;
use tabla_core::op::kind;

impl Link for kind::BitMatAdd {
    fn link(request: &Request<'_>) -> Result<Launch> {
        link_as::<true>(request)
    }
}
