//! `y[r] += W[r, :] . x, one token`

use super::product;
use super::sums::Wanted;
use super::{Launch, Request};
use tabla_core::error::Result;
use tabla_core::op::params::gemv::Params;

pub(super) fn link(request: &Request<'_>) -> Result<Launch> {
    let p: Params = request.params();
    let wanted = Wanted {
        tokens: 1,
        rows: p.rows,
        cols: p.cols,
        add: true,
    };
    product::link(request, wanted)
}
