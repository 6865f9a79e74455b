//! Module names of Hugging Face and MLX, and their GGUF names.

use super::latent_config::FUSED_KEYS_VALUES;

/// Pairs of names: Hugging Face, GGUF. A GGUF name with a suffix such as `.bias` is that of a whole tensor.
pub(crate) type Pairs = &'static [(&'static str, &'static str)];

/// Module names of an architecture. Files may lack some of them.
#[derive(Debug)]
pub(crate) struct Names {
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
const SANDWICH: Pairs = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// Experts of Qwen and most later architectures: one by one with the expert index after `experts`,
/// stacked, and of MLX.
const EXPERTS: Pairs = &[
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
const SHARED_EXPERT: Pairs = &[
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
];

/// Experts of Mixtral and Phi 3.5 MoE.
const BLOCK_SPARSE_MOE: Pairs = &[
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

pub(super) const OLMO2: Names = Names {
    layer: &[SANDWICH, ATTENTION, FEED_FORWARD],
    ..LLAMA
};

pub(super) const PHI3: Names = Names {
    layer: &[
        PRE_NORMS,
        &[
            ("self_attn.qkv_proj", "attn_qkv"),
            ("self_attn.o_proj", "attn_output"),
            ("mlp.gate_up_proj", "ffn_gate_up"),
            ("mlp.down_proj", "ffn_down"),
        ],
    ],
    ..LLAMA
};

/// Norms of the inputs of single projections, in models with int8 activations.
const NORMS_IN: Pairs = &[
    ("self_attn.q_proj.rms_norm", "attn_q_norm_in"),
    ("self_attn.k_proj.rms_norm", "attn_k_norm_in"),
    ("self_attn.v_proj.rms_norm", "attn_v_norm_in"),
    ("self_attn.o_proj.rms_norm", "attn_output_norm_in"),
    ("mlp.gate_proj.rms_norm", "ffn_gate_norm_in"),
    ("mlp.up_proj.rms_norm", "ffn_up_norm_in"),
    ("mlp.down_proj.rms_norm", "ffn_down_norm_in"),
];

pub(super) const QWEN3: Names = Names {
    layer: &[PRE_NORMS, ATTENTION, FEED_FORWARD, NORMS_IN],
    ..LLAMA
};

/// Modules of layers with the gated delta rule. Names with a suffix are parameters without a module.
const DELTA_NET: Pairs = &[
    ("linear_attn.in_proj_qkv", "attn_qkv"),
    ("linear_attn.in_proj_qkvz", "ssm_in"),
    ("linear_attn.in_proj_ba", "ssm_ba"),
    ("linear_attn.in_proj_z", "attn_gate"),
    ("linear_attn.in_proj_a", "ssm_alpha"),
    ("linear_attn.in_proj_b", "ssm_beta"),
    ("linear_attn.conv1d", "ssm_conv1d"),
    ("linear_attn.A_log", "ssm_a"),
    ("linear_attn.dt_bias", "ssm_dt.bias"),
    ("linear_attn.norm", "ssm_norm"),
    ("linear_attn.out_proj", "ssm_out"),
];

/// Modules of layers with a state-space model.
const MAMBA: Pairs = &[
    ("mamba.in_proj", "ssm_in"),
    ("mamba.conv1d", "ssm_conv1d"),
    ("mamba.A_log", "ssm_a"),
    ("mamba.D", "ssm_d"),
    ("mamba.dt_bias", "ssm_dt.bias"),
    ("mamba.norm", "ssm_norm"),
    ("mamba.out_proj", "ssm_out"),
];

/// A shared feed-forward layer, whose matrices of gate and up projection are fused in Hugging Face's files.
const SHARED_MLP: Pairs = &[
    ("shared_mlp.input_linear", "ffn_gate_up_shexp"),
    ("shared_mlp.output_linear", "ffn_down_shexp"),
    ("block_sparse_moe.router.layer", "ffn_gate_inp"),
    ("block_sparse_moe.input_linear", "ffn_gate_up_exps"),
    ("block_sparse_moe.output_linear", "ffn_down_exps"),
];

pub(super) const GRANITE: Names = Names {
    layer: &[
        PRE_NORMS,
        ATTENTION,
        FEED_FORWARD,
        MAMBA,
        SHARED_MLP,
        BLOCK_SPARSE_MOE,
    ],
    split: &[
        (
            "ffn_gate_up_shexp",
            &["ffn_gate", "ffn_up", "ffn_gate_shexp", "ffn_up_shexp"],
        ),
        ("ffn_down_shexp", &["ffn_down"]),
    ],
    ..LLAMA
};

pub(super) const FALCON_H1: Names = Names {
    outer: &[
        ("embed_tokens", "token_embd"),
        ("final_layernorm", "output_norm"),
        ("lm_head", HEAD),
    ],
    layer: &[
        ATTENTION,
        MAMBA,
        &[
            ("input_layernorm", "attn_norm"),
            ("pre_ff_layernorm", "ffn_norm"),
            ("feed_forward.gate_proj", "ffn_gate"),
            ("feed_forward.up_proj", "ffn_up"),
            ("feed_forward.down_proj", "ffn_down"),
        ],
    ],
    ..LLAMA
};

pub(super) const NEMOTRON_H: Names = Names {
    prefix: "backbone.",
    outer: &[
        ("embeddings", "token_embd"),
        ("norm_f", "output_norm"),
        ("lm_head", HEAD),
    ],
    layer: &[&[
        ("norm", "attn_norm"),
        ("mixer.in_proj", "ssm_in"),
        ("mixer.conv1d", "ssm_conv1d"),
        ("mixer.A_log", "ssm_a"),
        ("mixer.D", "ssm_d"),
        ("mixer.dt_bias", "ssm_dt.bias"),
        ("mixer.norm", "ssm_norm"),
        ("mixer.out_proj", "ssm_out"),
        ("mixer.q_proj", "attn_q"),
        ("mixer.k_proj", "attn_k"),
        ("mixer.v_proj", "attn_v"),
        ("mixer.o_proj", "attn_output"),
        ("mixer.up_proj", "ffn_up"),
        ("mixer.down_proj", "ffn_down"),
        ("mixer.gate", "ffn_gate_inp"),
        ("mixer.gate.e_score_correction_bias", "exp_probs_b.bias"),
        ("mixer.experts.up_proj", "ffn_up_exps"),
        ("mixer.experts.down_proj", "ffn_down_exps"),
        ("mixer.switch_mlp.fc1", "ffn_up_exps"),
        ("mixer.switch_mlp.fc2", "ffn_down_exps"),
        ("mixer.shared_experts.up_proj", "ffn_up_shexp"),
        ("mixer.shared_experts.down_proj", "ffn_down_shexp"),
        ("mixer.fc1_latent_proj", "ffn_latent_down"),
        ("mixer.fc2_latent_proj", "ffn_latent_up"),
    ]],
    // Layers that predict later tokens.
    ignored: &["mtp."],
    ..LLAMA
};

pub(super) const DEEPSEEK: Names = Names {
    layer: &[
        PRE_NORMS,
        FEED_FORWARD,
        EXPERTS,
        &[
            ("self_attn.q_proj", "attn_q"),
            ("self_attn.q_a_proj", "attn_q_a"),
            ("self_attn.q_a_layernorm", "attn_q_a_norm"),
            ("self_attn.q_b_proj", "attn_q_b"),
            ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
            ("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
            ("self_attn.kv_b_proj", "attn_kv_b"),
            ("self_attn.embed_q", "attn_k_b"),
            ("self_attn.unembed_out", "attn_v_b"),
            ("self_attn.o_proj", "attn_output"),
            ("eh_proj", "nextn.eh_proj"),
            ("enorm", "nextn.enorm"),
            ("hnorm", "nextn.hnorm"),
            ("embed_tokens", "nextn.embed_tokens"),
            ("shared_head.norm", "nextn.shared_head_norm"),
            ("shared_head.head", "nextn.shared_head_head"),
            ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
            ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
            ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
            ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
        ],
    ],
    split: &[FUSED_KEYS_VALUES],
    ..LLAMA
};

pub(super) const LFM2: Names = Names {
    outer: &[
        ("embed_tokens", "token_embd"),
        ("embedding_norm", "token_embd_norm"),
        ("lm_head", HEAD),
    ],
    layer: &[&[
        ("operator_norm", "attn_norm"),
        ("ffn_norm", "ffn_norm"),
        ("conv.in_proj", "shortconv.in_proj"),
        ("conv.conv", "shortconv.conv"),
        ("conv.out_proj", "shortconv.out_proj"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.out_proj", "attn_output"),
        ("self_attn.q_layernorm", "attn_q_norm"),
        ("self_attn.k_layernorm", "attn_k_norm"),
        ("feed_forward.w1", "ffn_gate"),
        ("feed_forward.w3", "ffn_up"),
        ("feed_forward.w2", "ffn_down"),
        ("feed_forward.gate_proj", "ffn_gate"),
        ("feed_forward.up_proj", "ffn_up"),
        ("feed_forward.down_proj", "ffn_down"),
        ("feed_forward.gate", "ffn_gate_inp"),
        ("feed_forward.expert_bias", "exp_probs_b.bias"),
        ("feed_forward.experts.w1", "ffn_gate_exps"),
        ("feed_forward.experts.w3", "ffn_up_exps"),
        ("feed_forward.experts.w2", "ffn_down_exps"),
        ("feed_forward.switch_mlp.gate_proj", "ffn_gate_exps"),
        ("feed_forward.switch_mlp.up_proj", "ffn_up_exps"),
        ("feed_forward.switch_mlp.down_proj", "ffn_down_exps"),
    ]],
    ..LLAMA
};

pub(super) const GPT_OSS: Names = Names {
    layer: &[
        &[
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", "post_attention_norm"),
            ("self_attn.sinks", "attn_sinks"),
            ("mlp.router", "ffn_gate_inp"),
        ],
        ATTENTION,
        EXPERTS,
    ],
    ..LLAMA
};

pub(super) const QWEN35: Names = Names {
    layer: &[
        &[
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", "post_attention_norm"),
        ],
        ATTENTION,
        FEED_FORWARD,
        EXPERTS,
        SHARED_EXPERT,
        DELTA_NET,
        &[
            ("fc", "nextn.eh_proj"),
            ("pre_fc_norm_embedding", "nextn.enorm"),
            ("pre_fc_norm_hidden", "nextn.hnorm"),
            ("norm", "nextn.shared_head_norm"),
        ],
    ],
    predictor: Some("mtp."),
    ..LLAMA
};

pub(super) const QWEN_MOE: Names = Names {
    layer: &[PRE_NORMS, ATTENTION, FEED_FORWARD, EXPERTS, SHARED_EXPERT],
    ..LLAMA
};

pub(super) const GEMMA2: Names = Names {
    layer: &[SANDWICH, ATTENTION, FEED_FORWARD],
    ..LLAMA
};

/// Modules of Gemma with per-layer embeddings; in Gemma 3n also matrices of its streams.
const LAYER_EMBEDDINGS: Pairs = &[
    ("embed_tokens", "token_embd"),
    ("norm", "output_norm"),
    ("lm_head", HEAD),
    ("embed_tokens_per_layer", "per_layer_token_embd"),
    ("per_layer_model_projection", "per_layer_model_proj"),
    ("per_layer_projection_norm", "per_layer_proj_norm"),
    ("altup_projections", "altup_proj"),
    ("altup_unembed_projections", "altup_unembd_proj"),
];

/// Modules that add a per-layer embedding.
const LAYER_EMBEDDING: Pairs = &[
    ("per_layer_input_gate", "inp_gate"),
    ("per_layer_projection", "proj"),
    ("post_per_layer_input_norm", "post_norm"),
];

pub(super) const GEMMA3N: Names = Names {
    outer: LAYER_EMBEDDINGS,
    layer: &[
        SANDWICH,
        ATTENTION,
        FEED_FORWARD,
        LAYER_EMBEDDING,
        &[
            ("laurel.linear_left", "laurel_l"),
            ("laurel.linear_right", "laurel_r"),
            ("laurel.post_laurel_norm", "laurel_post_norm"),
            ("altup.modality_router", "altup_router"),
            ("altup.router_norm", "altup_router_norm"),
            ("altup.prediction_coefs", "altup_predict_coef"),
            ("altup.correction_coefs", "altup_correct_coef"),
            ("altup.correct_output_scale", "altup_correct_scale"),
        ],
    ],
    ..LLAMA
};

pub(super) const GEMMA4: Names = Names {
    outer: LAYER_EMBEDDINGS,
    layer: &[
        SANDWICH,
        ATTENTION,
        FEED_FORWARD,
        LAYER_EMBEDDING,
        &[("layer_scalar", "layer_output_scale")],
        &[
            ("post_feedforward_layernorm_1", "post_ffw_norm_1"),
            ("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
            ("post_feedforward_layernorm_2", "post_ffw_norm_2"),
            ("router.proj", "ffn_gate_inp"),
            ("router.scale", "ffn_gate_inp.scale"),
            ("router.per_expert_scale", "ffn_down_exps.scale"),
            ("experts.gate_up_proj", "ffn_gate_up_exps"),
            ("experts.down_proj", "ffn_down_exps"),
            ("experts.switch_glu.gate_proj", "ffn_gate_exps"),
            ("experts.switch_glu.up_proj", "ffn_up_exps"),
            ("experts.switch_glu.down_proj", "ffn_down_exps"),
        ],
    ],
    ..LLAMA
};

pub(super) const BITNET: Names = Names {
    layer: &[
        PRE_NORMS,
        ATTENTION,
        FEED_FORWARD,
        &[
            ("self_attn.attn_sub_norm", "attn_sub_norm"),
            ("self_attn.inner_attn_ln", "attn_sub_norm"),
            ("mlp.ffn_sub_norm", "ffn_sub_norm"),
            ("mlp.ffn_layernorm", "ffn_sub_norm"),
        ],
    ],
    ..LLAMA
};

pub(super) const GPT2: Names = Names {
    prefix: "transformer.",
    layers: "h.",
    outer: &[
        ("wte", "token_embd"),
        ("wpe", "position_embd"),
        ("ln_f", "output_norm"),
        ("lm_head", HEAD),
    ],
    layer: &[&[
        ("ln_1", "attn_norm"),
        ("attn.c_attn", "attn_qkv"),
        ("attn.c_proj", "attn_output"),
        ("ln_2", "ffn_norm"),
        ("mlp.c_fc", "ffn_up"),
        ("mlp.c_proj", "ffn_down"),
    ]],
    split: &[],
    predictor: None,
    // Attention masks.
    ignored: &[".attn.bias", ".attn.masked_bias"],
    classifier_only: &[],
};

/// Heads for masked tokens and next sentences, and position ids.
const BERT_HEADS: &[&str] = &["cls.", "lm_head.", "embeddings.position_ids"];
/// Input of the classification heads of BERT.
const POOLER: &[&str] = &["pooler."];

pub(super) const STARCODER2: Names = Names {
    layer: &[
        PRE_NORMS,
        ATTENTION,
        &[("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down")],
    ],
    ..LLAMA
};

pub(super) const BERT: Names = Names {
    prefix: "",
    layers: "encoder.layer.",
    outer: &[
        ("embeddings.word_embeddings", "token_embd"),
        ("embeddings.position_embeddings", "position_embd"),
        ("embeddings.token_type_embeddings", "token_types"),
        ("embeddings.LayerNorm", "token_embd_norm"),
        ("bert.pooler.dense", CLASSIFIER_DENSE),
        ("classifier", CLASSIFIER),
        ("classifier.dense", CLASSIFIER_DENSE),
        ("classifier.out_proj", CLASSIFIER),
    ],
    layer: &[&[
        ("attention.self.query", "attn_q"),
        ("attention.self.key", "attn_k"),
        ("attention.self.value", "attn_v"),
        ("attention.output.dense", "attn_output"),
        ("attention.output.LayerNorm", "attn_output_norm"),
        ("intermediate.dense", "ffn_up"),
        ("output.dense", "ffn_down"),
        ("output.LayerNorm", "layer_output_norm"),
    ]],
    split: &[],
    predictor: None,
    ignored: BERT_HEADS,
    classifier_only: POOLER,
};

pub(super) const NOMIC_BERT: Names = Names {
    prefix: "",
    layers: "encoder.layers.",
    outer: &[
        ("embeddings.word_embeddings", "token_embd"),
        ("embeddings.token_type_embeddings", "token_types"),
        ("emb_ln", "token_embd_norm"),
    ],
    layer: &[&[
        ("attn.Wqkv", "attn_qkv"),
        ("attn.out_proj", "attn_output"),
        ("norm1", "attn_output_norm"),
        ("mlp.fc11", "ffn_up"),
        ("mlp.fc12", "ffn_gate"),
        ("mlp.fc2", "ffn_down"),
        ("norm2", "layer_output_norm"),
    ]],
    split: &[],
    predictor: None,
    ignored: BERT_HEADS,
    classifier_only: POOLER,
};

pub(super) const MODERN_BERT: Names = Names {
    prefix: "",
    layers: "layers.",
    outer: &[
        ("embeddings.tok_embeddings", "token_embd"),
        ("embeddings.norm", "token_embd_norm"),
        ("final_norm", "output_norm"),
        ("head.dense", CLASSIFIER_DENSE),
        ("head.norm", "cls.norm"),
        ("classifier", CLASSIFIER),
    ],
    layer: &[&[
        ("attn_norm", "attn_norm"),
        ("attn.Wqkv", "attn_qkv"),
        ("attn.Wo", "attn_output"),
        ("mlp_norm", "ffn_norm"),
        ("mlp.Wi", "ffn_gate_up"),
        ("mlp.Wo", "ffn_down"),
    ]],
    split: &[],
    predictor: None,
    ignored: &["decoder."],
    classifier_only: &["head."],
};
