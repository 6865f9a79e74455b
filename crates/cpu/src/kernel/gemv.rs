//! `y[r] = W[r, :] . x, one token`

use super::product;
use super::sums::One;
use super::{Launch, Request};
use tabla_core::error::Result;
use tabla_core::op::params::gemv::Params;

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    product::link::<One, false>(request, [1, p.rows, p.cols])
}
