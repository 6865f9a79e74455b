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

use crate::descriptors::Write;
pub(super) use launch::{Join, Launch, Request};
use tabla_core::error::Result;
use tabla_core::op::list::Op;

/// Returns the kernel of an operation.
#[expect(clippy::too_many_lines, reason = "a table of operations")]
pub(super) fn link(op: Op, request: &Request<'_>) -> Result<Launch> {
    Ok(match op {
        Op::Embed => embed::link(request)?,
        Op::EmbedAdd => embed_add::link(request)?,
        Op::RmsNorm => norms::rms_norm(request),
        Op::UnitNorm => norms::unit_norm(request),
        Op::LayerNorm => norms::layer_norm(request),
        Op::Gemv => matmul::gemv(request, Write::Store)?,
        Op::GemvAdd => matmul::gemv(request, Write::Add)?,
        Op::GemvNorm => fused::gemv_norm(request)?,
        Op::GemvGlu => fused::gemv_glu(request, Write::Store)?,
        Op::GemvGluAdd => fused::gemv_glu(request, Write::Add)?,
        Op::Gemm => matmul::gemm(request, Write::Store)?,
        Op::GemmAdd => matmul::gemm(request, Write::Add)?,
        Op::BitQuantize => bit_quantize::link(request),
        Op::BitMat => bit_mat::link(request)?,
        Op::BitMatAdd => bit_mat_add::link(request)?,
        Op::AddBias => elementwise::add_bias(request),
        Op::AddExpertBias => elementwise::add_expert_bias(request),
        Op::RopeKv => rope_kv::link(request)?,
        Op::RopeKeys => rope_kv::link_keys(request)?,
        Op::PreviousRow => previous_row::link(request)?,
        Op::Rope => rope::link(request),
        Op::Attention => attention::link(request)?,
        Op::AttendPart => attend_part::link(request)?,
        Op::AttendJoin => attend_join::link(request),
        Op::AttentionScores => attention_scores::link(request)?,
        Op::ConvTail => conv_tail::link(request),
        Op::DeltaGates => elementwise::delta_gates(request),
        Op::DeltaNet => delta_net::link(request)?,
        Op::SsmGates => elementwise::ssm_gates(request),
        Op::SsmScan => ssm_scan::link(request)?,
        Op::RmsGate => norms::rms_gate(request),
        Op::Glu => elementwise::glu(request)?,
        Op::GluHalves => elementwise::glu_halves(request)?,
        Op::GluClamped => elementwise::glu_clamped(request),
        Op::Activate => elementwise::activate(request)?,
        Op::Add => elementwise::add(request),
        Op::Scale => elementwise::scale(request),
        Op::ScaleAt => elementwise::scale_at(request),
        Op::MixStreams => streams::mix(request),
        Op::AddToStreams => streams::add(request),
        Op::MatchRms => norms::match_rms(request),
        Op::GaussianTopK => norms::gaussian_top_k(request),
        Op::Mul => elementwise::mul(request),
        Op::SoftCap => elementwise::soft_cap(request),
        Op::Columns => elementwise::columns(request),
        Op::PickColumns => elementwise::pick_columns(request),
        Op::Transfer => elementwise::transfer(request),
        Op::Concat => elementwise::concat(request),
        Op::SelfAttention => self_attention::link(request)?,
        Op::Route => route::link(request),
        Op::HeadIds => elementwise::head_ids(request),
        Op::Experts => experts::link(request)?,
        Op::GroupByExpert => group_by_expert::link(request),
        Op::GroupedGemm => grouped_gemm::link(request)?,
        Op::Combine => combine::link(request),
        Op::Unfold => elementwise::unfold(request),
        Op::LastRow => elementwise::last_row(request),
        Op::Capture => capture::capture(request),
        Op::CaptureIds => capture::capture_ids(request),
        Op::Edit => edit::edit(request),
        Op::ProjectOut => edit::project_out(request),
        Op::AttentionWeights => attention_weights::link(request)?,
        Op::SelfAttentionWeights => self_attention_weights::link(request),
        Op::AdapterScale => adapter_scale::link(request),
        Op::Bias => bias::link(request),
        Op::SpeechFilter => speech_filter::link(request),
        Op::Mask => mask::link(request),
        Op::Penalize => penalize::link(request),
        Op::Dry => dry::link(request),
        Op::TopNSigma => filter::link::<filters::TopNSigma>(request),
        Op::TopK => filter::link::<filters::TopK>(request),
        Op::Typical => filter::link::<filters::Typical>(request),
        Op::TopP => filter::link::<filters::TopP>(request),
        Op::MinP => filter::link::<filters::MinP>(request),
        Op::Xtc => filter::link::<filters::Xtc>(request),
        Op::Temper => temper::link(request),
        Op::DynamicTemper => filter::link::<filters::DynamicTemper>(request),
        Op::Mirostat => filter::link::<filters::Mirostat>(request),
        Op::Gumbel => gumbel::link(request),
        Op::Argmax => argmax::link(request),
        Op::MirostatMu => mirostat_mu::link(request),
        Op::Logprobs => logprobs::link(request),
        Op::Advance => advance::link(request),
    })
}
