//! Products of quantized weights and int8 activations.
//!
//! Weights are packed into panels (`crate::panel`), sixteen rows each, or read from the mapped file and packed
//! piece by piece by the same code. A panel has the fields of each block of 32 columns of all sixteen rows, so that a
//! vector has one row per lane:
//!
//! ```text
//! panel:  | block 0                                   | block 1 ...
//!         | scales of 16 rows | codes, word 0 of 16 rows | word 1 of 16 rows | ...
//!
//! activations of a token:  q: int8, 32 per block;  d: f32, one per block
//! ```
//!
//! The path of a product: `activations.rs` quantizes the rows of x, a step of its own that several products share;
//! `launch.rs` selects the kernel; `products.rs` walks panels and tokens; `weight_decode.rs` turns a block into
//! integers, scales and minima; `block_products.rs` multiplies and adds a block. `amx.rs` is `products.rs` for AMX,
//! on blocks that `decoded_span.rs` decodes to memory. `experts.rs` gathers the rows of x that select an expert.

pub(crate) mod activations;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
pub(crate) mod block_products;
pub(crate) mod decoded_span;
pub(crate) mod experts;
pub(crate) mod launch;
pub(crate) mod products;
pub(crate) mod weight_decode;
