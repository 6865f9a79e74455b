//! Module names of Hugging Face and MLX, and their GGUF names.

/// Pairs of names: Hugging Face, GGUF. A GGUF name with a suffix such as `.bias` is that of a whole tensor.
pub(crate) type Pairs = &'static [(&'static str, &'static str)];

/// Module names of an architecture. Files may lack some of them.
#[derive(Debug)]
pub struct Names {
    /// Prefix of all names for export. Import accepts all of [`PREFIXES`].
    pub prefix: &'static str,
    /// Text between the prefix and the layer index.
    pub layers: &'static str,
    /// Modules outside of the layers.
    pub outer: Pairs,
    /// Modules of a layer.
    pub layer: &'static [Pairs],
    /// Modules that are split or renamed while loading, and the parts.
    pub split: &'static [(&'static str, &'static [&'static str])],
    /// Prefix of the modules of the block that predicts later tokens, if its names differ from those of a layer.
    pub predictor: Option<&'static str>,
    /// Name parts of tensors to ignore: pretraining heads and copies of the configuration.
    pub ignored: &'static [&'static str],
    /// Name parts of tensors to ignore unless a classification head uses them.
    pub classifier_only: &'static [&'static str],
}

/// GGUF name of the output projection (`lm_head`).
pub(crate) const HEAD: &str = "output";

/// GGUF name of the output projection of a classification head.
pub(crate) const CLASSIFIER: &str = "cls.output";
/// GGUF name of its dense layer.
pub(crate) const CLASSIFIER_DENSE: &str = "cls";

/// Dense modules of sentence-transformers, in order. The number is the position of the module after the
/// transformer and pooling.
pub(crate) const DENSE_MODULES: Pairs =
    &[("2_Dense.linear", "dense_2"), ("3_Dense.linear", "dense_3")];

/// Prefixes of tensor names: empty in models without a head, longer in multimodal models.
pub(crate) const PREFIXES: &[&str] = &[
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "model.bert.",
    "bert.",
    "roberta.",
    "transformer.",
    "backbone.",
    "model.",
    "",
];

const OUTER: Pairs = &[
    ("embed_tokens", "token_embd"),
    ("norm", "output_norm"),
    ("lm_head", HEAD),
];

pub(super) const ATTENTION: Pairs = &[
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
];

pub(super) const FEED_FORWARD: Pairs = &[
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

pub(super) const PRE_NORMS: Pairs = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
];

/// Norms before and after attention and feed-forward layer.
pub(super) const SANDWICH: Pairs = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// Experts of Qwen and most later architectures: one by one with the expert index after `experts`,
/// stacked, and of MLX.
pub(super) const EXPERTS: Pairs = &[
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.experts.gate_proj", "ffn_gate_exps"),
    ("mlp.experts.up_proj", "ffn_up_exps"),
    ("mlp.experts.down_proj", "ffn_down_exps"),
    ("mlp.experts.gate_up_proj", "ffn_gate_up_exps"),
    ("mlp.switch_mlp.gate_proj", "ffn_gate_exps"),
    ("mlp.switch_mlp.up_proj", "ffn_up_exps"),
    ("mlp.switch_mlp.down_proj", "ffn_down_exps"),
];

/// A shared expert with a gate.
pub(super) const SHARED_EXPERT: Pairs = &[
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
];

/// Experts of Mixtral and Phi 3.5 MoE.
pub(super) const BLOCK_SPARSE_MOE: Pairs = &[
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("mlp.router", "ffn_gate_inp"),
    ("block_sparse_moe.experts.w1", "ffn_gate_exps"),
    ("block_sparse_moe.experts.w3", "ffn_up_exps"),
    ("block_sparse_moe.experts.w2", "ffn_down_exps"),
    ("block_sparse_moe.switch_mlp.gate_proj", "ffn_gate_exps"),
    ("block_sparse_moe.switch_mlp.up_proj", "ffn_up_exps"),
    ("block_sparse_moe.switch_mlp.down_proj", "ffn_down_exps"),
];

/// Llama and most later architectures.
pub(super) const LLAMA: Names = Names {
    prefix: "model.",
    layers: "layers.",
    outer: OUTER,
    layer: &[PRE_NORMS, ATTENTION, FEED_FORWARD],
    split: &[],
    predictor: None,
    ignored: &[],
    classifier_only: &[],
};

pub(super) const MIXTRAL: Names = Names {
    layer: &[
        PRE_NORMS,
        ATTENTION,
        FEED_FORWARD,
        BLOCK_SPARSE_MOE,
        EXPERTS,
    ],
    ..LLAMA
};

pub(super) const QWEN_MOE: Names = Names {
    layer: &[PRE_NORMS, ATTENTION, FEED_FORWARD, EXPERTS, SHARED_EXPERT],
    ..LLAMA
};
