//! Operations at points of the forward pass: captures, edits, weights of attention, factors of adapters.
//!
//! ```text
//! captured:  row of token t: | columns of point 0 | columns of point 1 | ...      `offset` is the first of a point
//! ```

pub(crate) mod adapter_scale;
pub(crate) mod attention_weights;
pub(crate) mod capture;
pub(crate) mod edit;
pub(crate) mod self_attention_weights;
