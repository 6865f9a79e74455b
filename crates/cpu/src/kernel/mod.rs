//! CPU kernels: one file per operation, or per group of operations with the same loop.

mod activation;
mod adapter_scale;
mod advance;
mod argmax;
mod attend;
mod attend_join;
mod attend_part;
mod attention;
mod attention_scores;
mod attention_weights;
#[cfg(target_arch = "x86_64")]
mod bf16_products;
mod bias;
mod bit_mat;
mod bit_mat_add;
mod bit_panels;
mod bit_quantize;
#[cfg(target_arch = "x86_64")]
mod bit_tiles;
mod block_products;
mod capture;
mod chunks;
mod code_launch;
#[cfg(target_arch = "x86_64")]
mod code_tiles;
mod codes;
mod combine;
mod conv_tail;
mod decoded_span;
mod delta_net;
mod dry;
mod edit;
mod elementwise;
mod embed;
mod embed_add;
mod expert_codes;
mod experts;
mod filter;
mod filters;
#[cfg(target_arch = "x86_64")]
mod float_panels;
#[cfg(target_arch = "x86_64")]
mod float_tiles;
mod floats;
mod fused;
mod group_by_expert;
mod grouped_gemm;
mod gumbel;
mod launch;
mod logprobs;
mod loops;
mod mask;
mod matmul;
mod matmul_output;
mod mirostat_mu;
mod norms;
mod pages;
mod penalize;
mod previous_row;
pub(super) mod quantize;
mod rope;
mod rope_kv;
mod rotation;
mod route;
mod row_groups;
mod scores;
mod self_attention;
mod self_attention_weights;
mod softmax;
mod speech_filter;
mod ssm_scan;
mod state_blocks;
mod streams;
mod temper;
mod tiles;
mod weight_decode;

/// Functions for tests.
pub(super) mod internals {
    pub use super::advance::advance;
    pub use super::argmax::argmax;
    pub use super::bit_quantize::quantize as bit_quantize;
    pub use super::dry::repetitions;

    pub use super::filter::{BINS, by_size};
    pub use super::filters::{sigma, threshold};
    pub use super::group_by_expert::sort as sort_by_expert;
    pub use super::logprobs::logprobs;
    pub use super::quantize::quantize_block;
    pub use super::route::largest;
    pub use super::softmax::Softmax;
}

pub(super) use launch::{Join, Launch, Request};
use tabla_core::error::Result;
use tabla_core::op::list::Op;
use tabla_core::with_kind;

/// An operation with a CPU kernel.
#[diagnostic::on_unimplemented(
    message = "the operation `{Self}` has no CPU kernel",
    note = "implement `Loop` or `Link` for it in crates/cpu/src/kernel/"
)]
trait Link {
    /// Returns the kernel and how it is launched.
    fn link(request: &Request<'_>) -> Result<Launch>;
}

/// Returns the kernel of an operation.
pub(super) fn link(op: Op, request: &Request<'_>) -> Result<Launch> {
    with_kind!(op, |K| <K as Link>::link(request))
}
