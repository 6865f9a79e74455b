//! Test cases by operation.

mod attention;
mod elementwise;
mod ends;
mod experts;
mod hooks;
mod products;
mod recurrent;
mod samplers;
mod speech;
mod streams;
mod ternary;

use crate::case::Case;
pub(crate) use streams::NAMES as STREAM_NAMES;
use tabla_core::op::list::Op;

/// Returns the cases of an operation, at least one.
#[expect(clippy::too_many_lines, reason = "a table of operations")]
pub fn cases(op: Op) -> &'static [Case] {
    match op {
        Op::Embed => ends::EMBED,
        Op::EmbedAdd => ends::EMBED_ADD,
        Op::RmsNorm => elementwise::RMS_NORM,
        Op::UnitNorm => elementwise::UNIT_NORM,
        Op::LayerNorm => elementwise::LAYER_NORM,
        Op::Gemv => products::GEMV,
        Op::GemvAdd => products::GEMV_ADD,
        Op::GemvNorm => products::GEMV_NORM,
        Op::GemvGlu => products::GEMV_GLU,
        Op::GemvGluAdd => products::GEMV_GLU_ADD,
        Op::Gemm => products::GEMM,
        Op::GemmAdd => products::GEMM_ADD,
        Op::BitQuantize => ternary::BIT_QUANTIZE,
        Op::BitMat => ternary::BIT_MAT,
        Op::BitMatAdd => ternary::BIT_MAT_ADD,
        Op::AddBias => elementwise::ADD_BIAS,
        Op::RopeKv => attention::ROPE_KV,
        Op::RopeKeys => attention::ROPE_KEYS,
        Op::PreviousRow => attention::PREVIOUS_ROW,
        Op::Rope => attention::ROPE,
        Op::Attention => attention::ATTENTION,
        Op::AttendPart => attention::ATTEND_PART,
        Op::AttendJoin => attention::ATTEND_JOIN,
        Op::AttentionScores => attention::ATTENTION_SCORES,
        Op::ConvTail => recurrent::CONV_TAIL,
        Op::DeltaGates => recurrent::DELTA_GATES,
        Op::DeltaNet => recurrent::DELTA_NET,
        Op::SsmGates => recurrent::SSM_GATES,
        Op::SsmScan => recurrent::SSM_SCAN,
        Op::RmsGate => recurrent::RMS_GATE,
        Op::Glu => elementwise::GLU,
        Op::GluHalves => elementwise::GLU_HALVES,
        Op::GluClamped => elementwise::GLU_CLAMPED,
        Op::Activate => elementwise::ACTIVATE,
        Op::AddExpertBias => experts::ADD_EXPERT_BIAS,
        Op::Add => elementwise::ADD,
        Op::Scale => elementwise::SCALE,
        Op::ScaleAt => elementwise::SCALE_AT,
        Op::MixStreams => streams::MIX_STREAMS,
        Op::AddToStreams => streams::ADD_TO_STREAMS,
        Op::MatchRms => streams::MATCH_RMS,
        Op::GaussianTopK => streams::GAUSSIAN_TOP_K,
        Op::Mul => elementwise::MUL,
        Op::SoftCap => elementwise::SOFT_CAP,
        Op::Columns => elementwise::COLUMNS,
        Op::PickColumns => elementwise::PICK_COLUMNS,
        Op::Concat => elementwise::CONCAT,
        Op::SelfAttention => attention::SELF_ATTENTION,
        Op::Route => experts::ROUTE,
        Op::HeadIds => experts::HEAD_IDS,
        Op::Experts => experts::EXPERTS,
        Op::GroupByExpert => experts::GROUP_BY_EXPERT,
        Op::GroupedGemm => experts::GROUPED_GEMM,
        Op::Combine => experts::COMBINE,
        Op::Transfer => elementwise::TRANSFER,
        Op::Unfold => elementwise::UNFOLD,
        Op::LastRow => ends::LAST_ROW,
        Op::Capture => hooks::CAPTURE,
        Op::CaptureIds => hooks::CAPTURE_IDS,
        Op::Edit => hooks::EDIT,
        Op::ProjectOut => hooks::PROJECT_OUT,
        Op::AttentionWeights => hooks::ATTENTION_WEIGHTS,
        Op::SelfAttentionWeights => hooks::SELF_ATTENTION_WEIGHTS,
        Op::AdapterScale => hooks::ADAPTER_SCALE,
        Op::Bias => samplers::BIAS,
        Op::SpeechFilter => speech::SPEECH_FILTER,
        Op::Mask => samplers::MASK,
        Op::Penalize => samplers::PENALIZE,
        Op::Dry => samplers::DRY,
        Op::TopNSigma => samplers::TOP_N_SIGMA,
        Op::TopK => samplers::TOP_K,
        Op::Typical => samplers::TYPICAL,
        Op::TopP => samplers::TOP_P,
        Op::MinP => samplers::MIN_P,
        Op::Xtc => samplers::XTC,
        Op::Temper => samplers::TEMPER,
        Op::DynamicTemper => samplers::DYNAMIC_TEMPER,
        Op::Mirostat => samplers::MIROSTAT,
        Op::Gumbel => samplers::GUMBEL,
        Op::Argmax => ends::ARGMAX,
        Op::MirostatMu => samplers::MIROSTAT_MU,
        Op::Logprobs => samplers::LOGPROBS,
        Op::Advance => ends::ADVANCE,
    }
}
