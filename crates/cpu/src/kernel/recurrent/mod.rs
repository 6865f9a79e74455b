//! Recurrent layers: short convolutions, the gated delta rule, state-space models.
//!
//! A state of a sequence is what it was before the current block of 16 positions, and an entry per position of the
//! block (`state_blocks.rs`), so that passes of any length have the same bits and a sequence can return to any of
//! these positions:
//!
//! ```text
//! state of a head:  | S before the block [key, value] | keys [key, 16] | values [16, value] | sums of gates [16] |
//! conv_state:       | inputs of the last 16 + taps - 1 positions, position p in row p % (16 + taps - 1) |
//! ```

pub(crate) mod conv_tail;
pub(crate) mod delta_net;
pub(crate) mod ssm_scan;
pub(crate) mod state_blocks;
