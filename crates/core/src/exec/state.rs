//! Layout of the step state: [`State`] as the shaders declare it, followed by the rows.

use crate::op::params::{Row, Sampler, State};
use crate::op::sampling::for_each_sampling_parameter;

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
pub const STOPS_MAX: usize = SAMPLER_OFF.stops.len();

macro_rules! sampler_off {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ident {
        off: $off:expr, default: $default:expr, range: [$min:expr, $max:expr],
        role: $role:ident, stage: $stage:ident, option: $option:literal, sampler: $sampler:ident
    })+) => {
        /// All samplers off: greedy sampling.
        pub const SAMPLER_OFF: Sampler = Sampler {
            $($sampler: $off,)+
            seed_lo: 0,
            seed_hi: 0,
            mirostat_mu: 0.0,
            logprobs: 0,
            masked: 0,
            bias_count: 0,
            stop_from: 0,
            first: 0,
            initial_timestamps: 0,
            stop_count: 0,
            stops: [0; 32],
        };
    };
}
for_each_sampling_parameter!(sampler_off);

/// Returns the size in bytes of a state with this many rows.
pub const fn state_bytes(rows: usize) -> usize {
    ROWS_OFFSET + rows * size_of::<Row>()
}
