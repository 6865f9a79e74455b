//! The step state as the host sees it: the shaders' own `State`, and the rows behind it.

pub use crate::op::params::{Bias, LogProbs, Row, Sampler, State};

/// [`Row::done`]: generation goes on.
pub const RUNNING: u32 = 0;
/// [`Row::done`]: a stop token was picked.
pub const STOPPED: u32 = 1;
/// [`Row::done`]: the next position is outside the context.
pub const FULL: u32 = 2;

/// Where the rows begin in the state's bytes.
pub const ROWS_OFFSET: usize = size_of::<State>();

/// Stop tokens that a sampler has room for.
pub const STOPS_MAX: usize = SAMPLER_OFF.stops.len();

/// Everything off: the largest logit is picked.
pub const SAMPLER_OFF: Sampler = Sampler {
    seed_lo: 0,
    seed_hi: 0,
    temperature: 0.0,
    dynatemp_range: 0.0,
    dynatemp_exponent: 1.0,
    top_n_sigma: 0.0,
    top_k: 0,
    typical_p: 1.0,
    top_p: 1.0,
    min_p: 0.0,
    xtc_probability: 0.0,
    xtc_threshold: 0.1,
    repeat_penalty: 1.0,
    frequency_penalty: 0.0,
    presence_penalty: 0.0,
    repeat_last: 0,
    dry_multiplier: 0.0,
    dry_base: 1.75,
    dry_allowed: 2,
    dry_last: 0,
    mirostat_tau: 0.0,
    mirostat_eta: 0.1,
    mirostat_mu: 0.0,
    log_probs: 0,
    masked: 0,
    bias_count: 0,
    stop_from: 0,
    stop_count: 0,
    stops: [0; 32],
};

/// Bytes of a state with this many rows.
pub const fn state_bytes(rows: usize) -> usize {
    ROWS_OFFSET + rows * size_of::<Row>()
}
