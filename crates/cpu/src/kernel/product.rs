//! Products of a matrix and activations: what gemv, gemm and their adding twins share.
//!
//! A tile is some rows by some tokens; each of its sums runs along the columns in one order,
//! whatever the tile. So a token's result is the same bits alone, in a batch of any size, and
//! on any number of threads.

use super::chunks;
use super::codes::{self, Wanted};
use super::floats;
use super::sums::Sizes;
use super::{Launch, Request};
use crate::panel::STRETCH;
use tabla_core::device::Precision;
use tabla_core::error::Result;

/// The kernel of a product of this shape: `[tokens, rows, cols]`.
pub(super) fn link<N: Sizes, const ADD: bool>(
    request: &Request<'_>,
    shape: [u32; 3],
) -> Result<Launch> {
    // Activations go to int8 in whole stretches.
    let whole = (shape[2] as usize).is_multiple_of(STRETCH);
    let [tokens, rows, cols] = shape;
    let wanted = Wanted {
        tokens,
        rows,
        cols,
        add: ADD,
    };
    if request.precision == Precision::Fast
        && whole
        && let Some(launch) = codes::link(request, wanted)
    {
        return Ok(launch);
    }
    match floats::link::<N, ADD>(request, shape) {
        Some(launch) => Ok(launch),
        None => chunks::link::<N, ADD>(request, shape),
    }
}
