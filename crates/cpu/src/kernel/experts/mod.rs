//! Mixtures of experts: `route` selects experts, `products.rs` and `grouped_gemm.rs` multiply their matrices,
//! `combine` adds the results.
//!
//! The matrices of all experts are one weight, row after row:
//!
//! ```text
//! W:  | rows of expert 0 | rows of expert 1 | ...          ids[t, s]: the expert of token t in slot s
//!                                                           y[t, s, :] = W[ids[t, s]] x[t or (t, s)]
//! ```
//!
//! The pairs `(t, s)` of an expert are gathered (`group_by_expert.rs`), so that a matrix is read once for all tokens
//! that selected it.

pub(crate) mod combine;
pub(crate) mod group_by_expert;
pub(crate) mod grouped_gemm;
pub(crate) mod products;
pub(crate) mod route;
