//! Parameters of kernels, the step state, and which kernels there are, as the shaders declare them.
//! Written by `cargo reflect` from shaders/: change it there.

use super::kernel_row::Kernels;
use super::list::Op;
use bytemuck::{Pod, Zeroable};

/// Positions of a page of the KV cache.
pub const PAGE: u32 = 64;
/// `Bias`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Bias {
    pub token: u32,
    pub bias: f32,
}
/// `LogProbs`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct LogProbs {
    pub token: u32,
    pub log_prob: f32,
    pub count: u32,
    pub tokens: [u32; 20],
    pub log_probs: [f32; 20],
}
/// `Row`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Row {
    pub token: u32,
    pub position: u32,
    pub sequence: u32,
    pub done: u32,
}
/// `Sampler`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Sampler {
    pub seed_lo: u32,
    pub seed_hi: u32,
    pub temperature: f32,
    pub dynatemp_range: f32,
    pub dynatemp_exponent: f32,
    pub top_n_sigma: f32,
    pub top_k: u32,
    pub typical_p: f32,
    pub top_p: f32,
    pub min_p: f32,
    pub xtc_probability: f32,
    pub xtc_threshold: f32,
    pub repeat_penalty: f32,
    pub frequency_penalty: f32,
    pub presence_penalty: f32,
    pub repeat_last: u32,
    pub dry_multiplier: f32,
    pub dry_base: f32,
    pub dry_allowed: u32,
    pub dry_last: u32,
    pub mirostat_tau: f32,
    pub mirostat_eta: f32,
    pub mirostat_mu: f32,
    pub log_probs: u32,
    pub masked: u32,
    pub bias_count: u32,
    pub stop_from: u32,
    pub stop_count: u32,
    pub stops: [u32; 32],
}
/// `State`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct State {
    pub live: u32,
    pub step: u32,
    pub context: u32,
}
/// Of `activate`.
pub mod activate {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub dim: u32,
    pub activation: u32,
}
}
/// Of `add`.
pub mod add {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub dim: u32,
    pub scale: f32,
}
}
/// Of `add_bias`.
pub mod add_bias {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub dim: u32,
}
}
/// Of `advance`.
pub mod advance {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
}
}
/// Of `argmax`.
pub mod argmax {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `attend_join`.
pub mod attend_join {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub heads: u32,
    pub head_dim: u32,
    pub window: u32,
    pub part: u32,
    pub parts: u32,
}
}
/// Of `attend_part`.
pub mod attend_part {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub scale: f32,
    pub softcap: f32,
    pub window: u32,
    pub stride: u32,
    pub first: u32,
    pub ring: u32,
    pub part: u32,
    pub parts: u32,
}
}
/// Of `attention`.
pub mod attention {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub scale: f32,
    pub softcap: f32,
    pub window: u32,
    pub stride: u32,
    pub first: u32,
    pub ring: u32,
}
}
/// Of `bias`.
pub mod bias {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
    pub room: u32,
}
}
/// Of `bit_mat`.
pub mod bit_mat {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub rows: u32,
    pub cols: u32,
    pub scale: f32,
}
}
/// Of `bit_mat_add`.
pub mod bit_mat_add {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub rows: u32,
    pub cols: u32,
    pub scale: f32,
}
}
/// Of `bit_quantize`.
pub mod bit_quantize {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub cols: u32,
}
}
/// Of `columns`.
pub mod columns {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub width: u32,
    pub offset: u32,
    pub dim: u32,
}
}
/// Of `combine`.
pub mod combine {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub k: u32,
    pub dim: u32,
}
}
/// Of `dry`.
pub mod dry {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
    pub words: u32,
}
}
/// Of `dynamic_temper`.
pub mod dynamic_temper {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `embed`.
pub mod embed {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub rows: u32,
    pub cols: u32,
    pub first: u32,
}
}
/// Of `embed_add`.
pub mod embed_add {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub rows: u32,
    pub cols: u32,
    pub stride: u32,
    pub offset: u32,
    pub first: u32,
}
}
/// Of `experts`.
pub mod experts {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub rows: u32,
    pub cols: u32,
    pub experts: u32,
    pub k: u32,
    pub per_expert: u32,
    pub first: u32,
}
}
/// Of `gemm`.
pub mod gemm {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub rows: u32,
    pub cols: u32,
    pub first: u32,
    pub width: u32,
}
}
/// Of `gemm_add`.
pub mod gemm_add {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub rows: u32,
    pub cols: u32,
    pub first: u32,
    pub width: u32,
}
}
/// Of `gemv`.
pub mod gemv {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub rows: u32,
    pub cols: u32,
    pub first: u32,
}
}
/// Of `gemv_add`.
pub mod gemv_add {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub rows: u32,
    pub cols: u32,
    pub first: u32,
}
}
/// Of `gemv_glu`.
pub mod gemv_glu {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub rows: u32,
    pub cols: u32,
    pub first: u32,
    pub activation: u32,
}
}
/// Of `gemv_glu_add`.
pub mod gemv_glu_add {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub rows: u32,
    pub cols: u32,
    pub first: u32,
    pub activation: u32,
}
}
/// Of `gemv_norm`.
pub mod gemv_norm {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub rows: u32,
    pub cols: u32,
    pub first: u32,
    pub eps: f32,
}
}
/// Of `glu`.
pub mod glu {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub dim: u32,
    pub activation: u32,
}
}
/// Of `group_by_expert`.
pub mod group_by_expert {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub k: u32,
    pub experts: u32,
    pub tile: u32,
    pub count: u32,
}
}
/// Of `grouped_gemm`.
pub mod grouped_gemm {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub rows: u32,
    pub cols: u32,
    pub experts: u32,
    pub k: u32,
    pub per_expert: u32,
    pub first: u32,
    pub tile: u32,
}
}
/// Of `gumbel`.
pub mod gumbel {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `last_row`.
pub mod last_row {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub dim: u32,
}
}
/// Of `layer_norm`.
pub mod layer_norm {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub dim: u32,
    pub eps: f32,
}
}
/// Of `log_probs`.
pub mod log_probs {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `mask`.
pub mod mask {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
    pub words: u32,
}
}
/// Of `min_p`.
pub mod min_p {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `mirostat`.
pub mod mirostat {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `mirostat_mu`.
pub mod mirostat_mu {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `mul`.
pub mod mul {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub dim: u32,
    pub len: u32,
}
}
/// Of `penalize`.
pub mod penalize {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `rms_norm`.
pub mod rms_norm {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub groups: u32,
    pub dim: u32,
    pub eps: f32,
}
}
/// Of `rope`.
pub mod rope {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub heads: u32,
    pub head_dim: u32,
    pub rope_dim: u32,
    pub half_split: u32,
    pub magnitude: f32,
}
}
/// Of `rope_kv`.
pub mod rope_kv {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub rope_dim: u32,
    pub half_split: u32,
    pub magnitude: f32,
    pub stride: u32,
    pub first: u32,
    pub ring: u32,
}
}
/// Of `route`.
pub mod route {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub experts: u32,
    pub k: u32,
    pub normalise: u32,
}
}
/// Of `scale`.
pub mod scale {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub dim: u32,
    pub factor: f32,
}
}
/// Of `self_attention`.
pub mod self_attention {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub scale: f32,
    pub reach: u32,
}
}
/// Of `soft_cap`.
pub mod soft_cap {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub dim: u32,
    pub cap: f32,
}
}
/// Of `temper`.
pub mod temper {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `top_k`.
pub mod top_k {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `top_n_sigma`.
pub mod top_n_sigma {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `top_p`.
pub mod top_p {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `typical`.
pub mod typical {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Of `unit_norm`.
pub mod unit_norm {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub groups: u32,
    pub dim: u32,
    pub eps: f32,
}
}
/// Of `xtc`.
pub mod xtc {
    use bytemuck::{Pod, Zeroable};
/// `Params`, as the shaders declare it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct Params {
    pub tokens: u32,
    pub vocab: u32,
}
}
/// Every kernel; of one operation the better forms come last.
pub static KERNELS: &[Kernels] = &[
    Kernels { op: Op::Activate, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::Add, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::AddBias, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::Advance, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::Argmax, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::AttendJoin, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::AttendPart, form: None, variants: TYPES_1, units: 1, tokens: 1 },
    Kernels { op: Op::AttendPart, form: Some("subgroup"), variants: TYPES_1, units: 1, tokens: 1 },
    Kernels { op: Op::Attention, form: None, variants: TYPES_1, units: 1, tokens: 1 },
    Kernels { op: Op::Attention, form: Some("subgroup"), variants: TYPES_1, units: 1, tokens: 1 },
    Kernels { op: Op::Attention, form: Some("tile"), variants: TYPES_1, units: 1, tokens: 32 },
    Kernels { op: Op::Bias, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::BitMat, form: None, variants: TYPES_2, units: 4, tokens: 8 },
    Kernels { op: Op::BitMat, form: Some("subgroup"), variants: TYPES_2, units: 4, tokens: 8 },
    Kernels { op: Op::BitMatAdd, form: None, variants: TYPES_2, units: 4, tokens: 8 },
    Kernels { op: Op::BitMatAdd, form: Some("subgroup"), variants: TYPES_2, units: 4, tokens: 8 },
    Kernels { op: Op::BitQuantize, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::Columns, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::Combine, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::Dry, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::DynamicTemper, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::Embed, form: None, variants: TYPES_3, units: 2048, tokens: 1 },
    Kernels { op: Op::EmbedAdd, form: None, variants: TYPES_3, units: 2048, tokens: 1 },
    Kernels { op: Op::Experts, form: None, variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::Experts, form: Some("subgroup"), variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::Experts, form: Some("subgroup+int8"), variants: TYPES_4, units: 4, tokens: 1 },
    Kernels { op: Op::Gemm, form: None, variants: TYPES_3, units: 64, tokens: 64 },
    Kernels { op: Op::Gemm, form: Some("subgroup+int8"), variants: TYPES_4, units: 64, tokens: 64 },
    Kernels { op: Op::Gemm, form: Some("subgroup+matrix+of8"), variants: TYPES_5, units: 64, tokens: 64 },
    Kernels { op: Op::Gemm, form: Some("subgroup+matrix+of16"), variants: TYPES_5, units: 64, tokens: 64 },
    Kernels { op: Op::GemmAdd, form: None, variants: TYPES_3, units: 64, tokens: 64 },
    Kernels { op: Op::GemmAdd, form: Some("subgroup+int8"), variants: TYPES_4, units: 64, tokens: 64 },
    Kernels { op: Op::GemmAdd, form: Some("subgroup+matrix+of8"), variants: TYPES_5, units: 64, tokens: 64 },
    Kernels { op: Op::GemmAdd, form: Some("subgroup+matrix+of16"), variants: TYPES_5, units: 64, tokens: 64 },
    Kernels { op: Op::Gemv, form: None, variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::Gemv, form: Some("subgroup"), variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::Gemv, form: Some("subgroup+int8"), variants: TYPES_4, units: 4, tokens: 1 },
    Kernels { op: Op::GemvAdd, form: None, variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::GemvAdd, form: Some("subgroup"), variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::GemvAdd, form: Some("subgroup+int8"), variants: TYPES_4, units: 4, tokens: 1 },
    Kernels { op: Op::GemvGlu, form: None, variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::GemvGlu, form: Some("subgroup"), variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::GemvGlu, form: Some("subgroup+int8"), variants: TYPES_4, units: 4, tokens: 1 },
    Kernels { op: Op::GemvGluAdd, form: None, variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::GemvGluAdd, form: Some("subgroup"), variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::GemvGluAdd, form: Some("subgroup+int8"), variants: TYPES_4, units: 4, tokens: 1 },
    Kernels { op: Op::GemvNorm, form: None, variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::GemvNorm, form: Some("subgroup"), variants: TYPES_3, units: 4, tokens: 1 },
    Kernels { op: Op::GemvNorm, form: Some("subgroup+int8"), variants: TYPES_4, units: 4, tokens: 1 },
    Kernels { op: Op::Glu, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::GroupByExpert, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::GroupedGemm, form: None, variants: TYPES_3, units: 64, tokens: 32 },
    Kernels { op: Op::GroupedGemm, form: Some("subgroup+int8"), variants: TYPES_4, units: 64, tokens: 32 },
    Kernels { op: Op::GroupedGemm, form: Some("subgroup+matrix+of8"), variants: TYPES_5, units: 64, tokens: 32 },
    Kernels { op: Op::GroupedGemm, form: Some("subgroup+matrix+of16"), variants: TYPES_5, units: 64, tokens: 32 },
    Kernels { op: Op::Gumbel, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::LastRow, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::LayerNorm, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::LayerNorm, form: Some("subgroup"), variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::LogProbs, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::Mask, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::MinP, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::MinP, form: Some("subgroup"), variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::Mirostat, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::MirostatMu, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::Mul, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::Penalize, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::RmsNorm, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::RmsNorm, form: Some("subgroup"), variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::Rope, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::RopeKv, form: None, variants: TYPES_1, units: 1, tokens: 1 },
    Kernels { op: Op::Route, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::Route, form: Some("subgroup"), variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::Scale, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::SelfAttention, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::SelfAttention, form: Some("subgroup"), variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::SoftCap, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::Temper, form: None, variants: TYPES_0, units: 256, tokens: 1 },
    Kernels { op: Op::TopK, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::TopNSigma, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::TopP, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::TopP, form: Some("subgroup"), variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::Typical, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::UnitNorm, form: None, variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::UnitNorm, form: Some("subgroup"), variants: TYPES_0, units: 1, tokens: 1 },
    Kernels { op: Op::Xtc, form: None, variants: TYPES_0, units: 1, tokens: 1 },
];
const TYPES_0: &[&str] = &[];
const TYPES_1: &[&str] = &["f32", "f16", "q8_0"];
const TYPES_2: &[&str] = &["i2_s", "tq1_0", "tq2_0", "ternary"];
const TYPES_3: &[&str] = &["f32", "f16", "bf16", "e4m3", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k", "tq1_0", "tq2_0", "i2_s", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "mxfp4", "affine2", "affine3", "affine4", "affine5", "affine6", "affine8", "e2m1", "i8", "ternary"];
const TYPES_4: &[&str] = &["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k", "tq1_0", "tq2_0", "i2_s", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "mxfp4", "affine2", "affine3", "affine4", "affine5", "affine6", "affine8", "e2m1", "i8", "ternary"];
const TYPES_5: &[&str] = &["f16", "bf16", "e4m3", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k", "tq1_0", "tq2_0", "i2_s", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "mxfp4", "affine2", "affine3", "affine4", "affine5", "affine6", "affine8", "e2m1", "i8", "ternary"];
/// Bytes of the parameters of an operation.
pub fn bytes(op: Op) -> usize {
    match op {
        Op::Activate => size_of::<activate::Params>(),
        Op::Add => size_of::<add::Params>(),
        Op::AddBias => size_of::<add_bias::Params>(),
        Op::Advance => size_of::<advance::Params>(),
        Op::Argmax => size_of::<argmax::Params>(),
        Op::AttendJoin => size_of::<attend_join::Params>(),
        Op::AttendPart => size_of::<attend_part::Params>(),
        Op::Attention => size_of::<attention::Params>(),
        Op::Bias => size_of::<bias::Params>(),
        Op::BitMat => size_of::<bit_mat::Params>(),
        Op::BitMatAdd => size_of::<bit_mat_add::Params>(),
        Op::BitQuantize => size_of::<bit_quantize::Params>(),
        Op::Columns => size_of::<columns::Params>(),
        Op::Combine => size_of::<combine::Params>(),
        Op::Dry => size_of::<dry::Params>(),
        Op::DynamicTemper => size_of::<dynamic_temper::Params>(),
        Op::Embed => size_of::<embed::Params>(),
        Op::EmbedAdd => size_of::<embed_add::Params>(),
        Op::Experts => size_of::<experts::Params>(),
        Op::Gemm => size_of::<gemm::Params>(),
        Op::GemmAdd => size_of::<gemm_add::Params>(),
        Op::Gemv => size_of::<gemv::Params>(),
        Op::GemvAdd => size_of::<gemv_add::Params>(),
        Op::GemvGlu => size_of::<gemv_glu::Params>(),
        Op::GemvGluAdd => size_of::<gemv_glu_add::Params>(),
        Op::GemvNorm => size_of::<gemv_norm::Params>(),
        Op::Glu => size_of::<glu::Params>(),
        Op::GroupByExpert => size_of::<group_by_expert::Params>(),
        Op::GroupedGemm => size_of::<grouped_gemm::Params>(),
        Op::Gumbel => size_of::<gumbel::Params>(),
        Op::LastRow => size_of::<last_row::Params>(),
        Op::LayerNorm => size_of::<layer_norm::Params>(),
        Op::LogProbs => size_of::<log_probs::Params>(),
        Op::Mask => size_of::<mask::Params>(),
        Op::MinP => size_of::<min_p::Params>(),
        Op::Mirostat => size_of::<mirostat::Params>(),
        Op::MirostatMu => size_of::<mirostat_mu::Params>(),
        Op::Mul => size_of::<mul::Params>(),
        Op::Penalize => size_of::<penalize::Params>(),
        Op::RmsNorm => size_of::<rms_norm::Params>(),
        Op::Rope => size_of::<rope::Params>(),
        Op::RopeKv => size_of::<rope_kv::Params>(),
        Op::Route => size_of::<route::Params>(),
        Op::Scale => size_of::<scale::Params>(),
        Op::SelfAttention => size_of::<self_attention::Params>(),
        Op::SoftCap => size_of::<soft_cap::Params>(),
        Op::Temper => size_of::<temper::Params>(),
        Op::TopK => size_of::<top_k::Params>(),
        Op::TopNSigma => size_of::<top_n_sigma::Params>(),
        Op::TopP => size_of::<top_p::Params>(),
        Op::Typical => size_of::<typical::Params>(),
        Op::UnitNorm => size_of::<unit_norm::Params>(),
        Op::Xtc => size_of::<xtc::Params>(),
    }
}
