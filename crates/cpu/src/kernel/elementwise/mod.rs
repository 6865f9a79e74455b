//! Operations on elements and rows of activations: one loop each (`loops.rs`), embeddings, norms.
//!
//! Activations are rows of f32, one per token; a unit of work is an element, a group of a row, or a row:
//!
//! ```text
//! y:  | row of token 0: | group 0 (head 0) | group 1 | ... | row of token 1 | ...
//! ```

pub(crate) mod activation;
pub(crate) mod convert;
pub(crate) mod embed;
pub(crate) mod embed_add;
pub(crate) mod loops;
pub(crate) mod norms;
pub(crate) mod operations;
pub(crate) mod streams;
