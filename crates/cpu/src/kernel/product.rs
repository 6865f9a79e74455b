//! Products of a matrix and activations: what gemv, gemm and their adding twins share.
//!
//! A tile is some rows by some tokens; each of its sums runs along the columns in one order,
//! whatever the tile. So a token's result is the same bits alone, in a batch of any size, and
//! on any number of threads.

use super::chunks;
use super::codes;
use super::floats;
use super::sums::Wanted;
use super::{Launch, Request};
use crate::panel::STRETCH;
use tabla_core::device::Precision;
use tabla_core::error::Result;

/// The kernel of a product.
pub(super) fn link(request: &Request<'_>, wanted: Wanted) -> Result<Launch> {
    // Activations go to int8 in whole stretches.
    let whole = (wanted.cols as usize).is_multiple_of(STRETCH);
    if request.precision == Precision::Fast
        && whole
        && let Some(launch) = codes::link(request, wanted)
    {
        return Ok(launch);
    }
    match floats::link(request, wanted) {
        Some(launch) => Ok(launch),
        None => chunks::link(request, wanted),
    }
}
