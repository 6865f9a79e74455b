//! Functions that operations take as a parameter, and limits of their operands.

/// Activation function of a feed-forward layer or a gate; the discriminant is its number in the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Activation {
    /// `x sigmoid(x)`.
    Silu = 0,
    /// `x (1 + erf(x / sqrt(2))) / 2`.
    Gelu = 1,
    /// `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`, an approximation of GELU.
    GeluTanh = 2,
    /// `max(x, 0)^2`.
    Relu2 = 3,
    /// `max(x, 0)`.
    Relu = 4,
    /// `1 / (1 + exp(-x))`.
    Sigmoid = 5,
    /// `x`.
    Linear = 6,
}

impl Activation {
    /// All activations, in the order of their numbers.
    pub const ALL: &'static [Self] = &[
        Self::Silu,
        Self::Gelu,
        Self::GeluTanh,
        Self::Relu2,
        Self::Relu,
        Self::Sigmoid,
        Self::Linear,
    ];
}

/// Function `p` of the logits of a router; the discriminant is its number in the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ExpertScore {
    /// Softmax over all experts.
    Softmax = 0,
    /// Sigmoid of each logit.
    Sigmoid = 1,
    /// `sqrt(ln(1 + exp(x)))` of each logit.
    SqrtSoftplus = 2,
    /// `SparseMixer` at inference (arXiv:2409.12136): `exp(x)` of a selected expert, divided by the sum
    /// over the experts not selected before it whose logit is near: at least `x - eps max(|logit|, x)`.
    SparseMixer = 3,
}

/// Maximum number of experts of a layer.
pub const EXPERTS_MAX: u32 = 4096;

/// Maximum number of groups of experts.
pub const EXPERT_GROUPS_MAX: u32 = 64;

/// Number of residual streams.
pub const STREAMS: u32 = 4;
