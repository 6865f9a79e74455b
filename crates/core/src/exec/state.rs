//! Layout of the step state: [`State`] as the shaders declare it, followed by the rows.

use crate::op::params::{Row, Sampler, State};

pub use super::sampler_off::sampler_off;

/// [`Row::done`]: the row is active.
pub const RUNNING: u32 = 0;
/// [`Row::done`]: a stop token was sampled.
pub const STOPPED: u32 = 1;
/// [`Row::done`]: the next position is outside the context.
pub const FULL: u32 = 2;

/// [`Row::done`]: no logit was finite, so no token was sampled; token and position are unchanged.
pub const NOT_FINITE: u32 = 3;

/// Id that `argmax` writes for a row without a finite maximum.
pub const NO_TOKEN: u32 = u32::MAX;

/// Byte offset of the rows in the state.
pub const ROWS_OFFSET: usize = size_of::<State>();

/// Maximum number of stop tokens of a sampler.
pub const STOPS_MAX: usize = 32;
const _: fn(&Sampler) -> &[u32; STOPS_MAX] = |sampler| &sampler.stops;

/// Returns the size in bytes of a state with this many rows.
pub const fn state_bytes(rows: usize) -> usize {
    ROWS_OFFSET + rows * size_of::<Row>()
}
