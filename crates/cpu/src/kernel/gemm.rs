//! `y[t, r] = W[r, :] . x[t, :]`

use super::product;
use super::sums::Many;
use super::{Launch, Request};
use tabla_core::error::Result;
use tabla_core::op::params::gemm::Params;

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    product::link::<Many, false>(request, [p.tokens, p.rows, p.cols])
}
