//! Sampling: from logits to the next token.
//!
//! `bias`, `speech_filter`, `penalize` and `dry` write a copy of the logits; filters change it in place. A token that
//! is removed has the logit -inf. `filter.rs` is the common frame of `filters.rs`. `argmax` picks the token, `advance` appends it to the step state:
//!
//! ```text
//! logits: | row of token 0: vocab | ...    samplers: one per sequence    history: | tokens of sequence 0: context | ...
//! ```

pub(crate) mod advance;
pub(crate) mod argmax;
pub(crate) mod bias;
pub(crate) mod dry;
pub(crate) mod filter;
pub(crate) mod filters;
pub(crate) mod gumbel;
pub(crate) mod logprobs;
pub(crate) mod mask;
pub(crate) mod mirostat_mu;
pub(crate) mod penalize;
pub(crate) mod softmax;
pub(crate) mod speech_filter;
pub(crate) mod temper;
