//! The step state as the host sees it: the shaders' own `State`, and the rows behind it.

use std::mem::offset_of;

pub use crate::op::shaders::{Row, State};

/// [`Row::done`]: generation goes on.
pub const RUNNING: u32 = 0;
/// [`Row::done`]: a stop token was picked.
pub const STOPPED: u32 = 1;
/// [`Row::done`]: the next position is outside the context.
pub const FULL: u32 = 2;

/// Where the rows begin in the state's bytes.
pub const ROWS_OFFSET: usize = size_of::<State>();

/// Stop tokens that a state has room for; they end its head.
pub const STOPS_MAX: usize = (ROWS_OFFSET - offset_of!(State, stops)) / size_of::<u32>();

/// Bytes of a state with this many rows.
pub const fn state_bytes(rows: usize) -> usize {
    ROWS_OFFSET + rows * size_of::<Row>()
}
