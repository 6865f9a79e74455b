//! Attention, its positions (`RoPE`) and the KV cache.
//!
//! The keys and the values of a layer are a pool of pages of 64 positions; the page table maps the positions of a
//! sequence to rows (`pages.rs`):
//!
//! ```text
//! page table:  sequence 0: | page 7 | page 2 | ...          position p: entry p / 64, row p % 64 of its page
//! pool:        | page 0: 64 rows of [kv_heads, head_dim] | page 1 | ...
//! q8_0 row:    | all codes, int8 | all scales, f16: one per 32 codes |
//! ```
//!
//! `rope_kv.rs` rotates and stores keys and values. `causal.rs` computes attention in blocks of 256 positions
//! (`key_blocks.rs`) that are merged in order; `register_tiles.rs` has the products of several query rows.
//! `attend_part.rs` and `attend_join.rs` are the scalar reference for GPUs, which share a row among workgroups.

pub(crate) mod attend_join;
pub(crate) mod attend_part;
pub(crate) mod attention_scores;
pub(crate) mod causal;
pub(crate) mod key_blocks;
pub(crate) mod pages;
pub(crate) mod previous_row;
pub(crate) mod register_tiles;
pub(crate) mod rope;
pub(crate) mod rope_kv;
pub(crate) mod rotation;
pub(crate) mod scores;
pub(crate) mod self_attention;
