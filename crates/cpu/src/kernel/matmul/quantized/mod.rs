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
//! tile of N tokens, a block:  q: int8, 32 of each token | d | start, two halves | sum, two halves
//!                                                         (each: one 32-bit number per token)
//! ```
//!
//! The path of a product: `activations.rs` quantizes the rows of x, a step of its own that several products share;
//! `launch.rs` selects the kernel; `products.rs` walks panels and tokens; `weight_decode.rs` decodes a panel, block
//! after block, to integers, scales and minima; `block_products.rs` multiplies and adds a block. `amx.rs` is
//! `products.rs` for AMX, on blocks that `decoded_span.rs` stores in memory. `experts.rs` gathers the rows of x that
//! select an expert.
//!
//! Each trait is one idea:
//!
//! | trait | implementations |
//! |---|---|
//! | `Format`: how a block of a panel is decoded | one per block format |
//! | `Codes`: range of the integers, scales of halves, minima; kernels are compiled for each | one per combination |
//! | `Sink` and `Sinks`: where decoded blocks of a panel, and of several panels, go | multiplied in registers (few tokens), stored in memory (many tokens) |
//!
//! Constants: `T` tokens are multiplied together, of the `N` tokens of a tile, starting at token `F`. All offsets
//! within a block are then constants too.

pub(crate) mod activations;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
pub(crate) mod block_products;
pub(crate) mod decoded_span;
pub(crate) mod experts;
pub(crate) mod launch;
pub(crate) mod products;
pub(crate) mod weight_decode;
