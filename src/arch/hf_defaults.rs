//! Defaults of Hugging Face `config.json` files, by `model_type`.

/// Defaults and special rules of some model types.
#[derive(Debug)]
pub(crate) struct HfDefaults {
    /// Values of `model_type`.
    pub model_types: &'static [&'static str],
    /// Values of absent keys in `transformers`, as JSON in the format of `config.json`.
    pub json: &'static str,
    /// Special rule for reading the configuration.
    pub rule: Option<ConfigRule>,
}

/// Special rule for reading a `config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigRule {
    /// Position 0 is the row after the one with the index of the padding token.
    PositionsAfterPadding,
    /// `partial_rotary_factor` applies. Without this rule it is ignored and whole heads are rotated.
    PartialRotary,
    /// There is RoPE only if `position_embedding_type` is `rope`.
    OptionalRope,
    /// `norm_eps` is the epsilon of RMS norms.
    RmsNormEps,
}

const NONE: HfDefaults = HfDefaults {
    model_types: &[],
    json: "{}",
    rule: None,
};

/// Defaults of the configuration classes of `transformers` 5 that files rely on. For multimodal
/// models all are listed, because nested configurations contain only differences.
const DEFAULTS: &[HfDefaults] = &[
    HfDefaults {
        model_types: &["llama", "granite"],
        json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["mistral"],
        json: r#"{"max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
            "num_key_value_heads": 8, "sliding_window": 4096}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["mistral3"],
        json: r#"{"vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 32768,
            "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
            "head_dim": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
            "rope_theta": 1e9}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["ministral3"],
        json: r#"{"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 34, "num_attention_heads": 32, "num_key_value_heads": 8,
            "head_dim": 128, "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
                "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
                "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1},
            "tie_word_embeddings": false}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["mixtral"],
        json: r#"{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
            "num_key_value_heads": 8, "rope_theta": 1e6, "num_local_experts": 8,
            "num_experts_per_tok": 2}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["smollm3"],
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "num_key_value_heads": 4, "rope_theta": 2e6, "no_rope_layer_interval": 4,
            "use_sliding_window": false}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["phi3"],
        json: r#"{"max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
            "original_max_position_embeddings": 4096}"#,
        rule: Some(ConfigRule::PartialRotary),
    },
    HfDefaults {
        model_types: &["olmo2"],
        json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-5}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["olmoe"],
        json: r#"{"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "num_experts": 64,
            "num_experts_per_tok": 8, "norm_topk_prob": false}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["phimoe"],
        json: r#"{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
            "num_key_value_heads": 8, "rope_theta": 1e6, "num_local_experts": 16,
            "num_experts_per_tok": 2, "router_jitter_noise": 0.01}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["qwen2"],
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "use_sliding_window": false, "max_window_layers": 28}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["qwen2_moe"],
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "num_key_value_heads": 16, "use_sliding_window": false, "max_window_layers": 28,
            "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632, "norm_topk_prob": false}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["qwen3"],
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "head_dim": 128,
            "use_sliding_window": false, "max_window_layers": 28}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["qwen3_moe"],
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "num_key_value_heads": 4, "use_sliding_window": false, "num_experts": 128,
            "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": false}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["qwen3_5", "qwen3_5_text"],
        json: r#"{"vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288,
            "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 4,
            "head_dim": 256, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
            "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
            "rope_theta": 1e7, "partial_rotary_factor": 0.25, "tie_word_embeddings": false}"#,
        rule: Some(ConfigRule::PartialRotary),
    },
    HfDefaults {
        model_types: &["qwen3_5_moe", "qwen3_5_moe_text"],
        json: r#"{"vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40,
            "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "full_attention_interval": 4,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
            "linear_num_key_heads": 16, "linear_num_value_heads": 32, "num_experts": 256,
            "num_experts_per_tok": 8, "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512, "rope_theta": 1e7,
            "partial_rotary_factor": 0.25, "tie_word_embeddings": false}"#,
        rule: Some(ConfigRule::PartialRotary),
    },
    HfDefaults {
        model_types: &["qwen3_next"],
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "head_dim": 256,
            "num_key_value_heads": 2, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32, "num_experts": 512, "num_experts_per_tok": 10,
            "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
            "norm_topk_prob": true, "partial_rotary_factor": 0.25}"#,
        rule: Some(ConfigRule::PartialRotary),
    },
    HfDefaults {
        model_types: &["falcon_h1"],
        json: r#"{"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "num_key_value_heads": 8,
            "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256,
            "mamba_d_conv": 4, "mamba_norm_before_gate": true, "attention_in_multiplier": 1.0,
            "tie_word_embeddings": false}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["deepseek_v2"],
        json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "first_k_dense_replace": 0,
            "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts_per_tok": 2,
            "moe_intermediate_size": 1407, "n_routed_experts": 64, "routed_scaling_factor": 1.0,
            "topk_method": "greedy", "scoring_func": "softmax"}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["deepseek_v3"],
        json: r#"{"vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
            "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "n_shared_experts": 1,
            "n_routed_experts": 256, "routed_scaling_factor": 2.5, "kv_lora_rank": 512,
            "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8,
            "first_k_dense_replace": 3, "norm_topk_prob": true, "scoring_func": "sigmoid"}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["glm4_moe_lite"],
        json: r#"{"vocab_size": 154880, "hidden_size": 2048, "intermediate_size": 10240,
            "moe_intermediate_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 20,
            "max_position_embeddings": 202752, "rms_norm_eps": 1e-5, "n_shared_experts": 1,
            "n_routed_experts": 64, "routed_scaling_factor": 1.8, "kv_lora_rank": 512,
            "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
            "v_head_dim": 256, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 4,
            "first_k_dense_replace": 1, "norm_topk_prob": true, "scoring_func": "sigmoid"}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["granitemoe", "granitemoeshared"],
        json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "num_local_experts": 8,
            "num_experts_per_tok": 2, "embedding_multiplier": 1.0, "logits_scaling": 1.0,
            "residual_multiplier": 1.0, "attention_multiplier": 1.0}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["granitemoehybrid"],
        json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "num_local_experts": 8,
            "num_experts_per_tok": 2, "shared_intermediate_size": 1024, "embedding_multiplier": 1.0,
            "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
            "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
            "mamba_expand": 2, "tie_word_embeddings": false}"#,
        rule: Some(ConfigRule::OptionalRope),
    },
    HfDefaults {
        model_types: &["nemotron_h"],
        json: r#"{"vocab_size": 131072, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 4096,
            "intermediate_size": 21504, "mlp_hidden_act": "relu2", "ssm_state_size": 128,
            "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4,
            "n_routed_experts": 8, "n_shared_experts": 1, "moe_intermediate_size": 7688,
            "moe_shared_expert_intermediate_size": 7688, "num_experts_per_tok": 2,
            "routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
            "layer_norm_epsilon": 1e-5, "tie_word_embeddings": false}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["lfm2"],
        json: r#"{"vocab_size": 65536, "hidden_size": 2560, "intermediate_size": 12288,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "max_position_embeddings": 128000, "norm_eps": 1e-5, "rope_theta": 1e6,
            "conv_L_cache": 3, "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0,
            "block_auto_adjust_ff_dim": true, "tie_word_embeddings": true}"#,
        rule: Some(ConfigRule::RmsNormEps),
    },
    HfDefaults {
        model_types: &["lfm2_moe"],
        json: r#"{"vocab_size": 65536, "hidden_size": 2048, "intermediate_size": 7168,
            "moe_intermediate_size": 1792, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 128000, "norm_eps": 1e-5,
            "rope_theta": 1e6, "conv_L_cache": 3, "num_dense_layers": 2, "num_experts_per_tok": 4,
            "num_experts": 32, "norm_topk_prob": true, "routed_scaling_factor": 1.0,
            "scoring_func": "sigmoid", "tie_word_embeddings": true}"#,
        rule: Some(ConfigRule::RmsNormEps),
    },
    HfDefaults {
        model_types: &["gpt_oss"],
        json: r#"{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "head_dim": 64,
            "num_key_value_heads": 8, "num_local_experts": 128, "num_experts_per_tok": 4,
            "sliding_window": 128, "sliding_window_pattern": 2, "rope_theta": 150000.0,
            "swiglu_alpha": 1.702, "swiglu_limit": 7.0}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["gemma"],
        json: r#"{"max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "head_dim": 256,
            "num_key_value_heads": 16}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["gemma2"],
        json: r#"{"max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "head_dim": 256,
            "num_attention_heads": 8, "num_key_value_heads": 4, "query_pre_attn_scalar": 256,
            "sliding_window": 4096, "sliding_window_pattern": 2, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["gemma3_text", "gemma3"],
        json: r#"{"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
            "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
            "head_dim": 256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
            "query_pre_attn_scalar": 256, "sliding_window": 4096, "sliding_window_pattern": 6,
            "rope_theta": 1e6, "rope_local_base_freq": 1e4, "tie_word_embeddings": true}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["gemma3n_text", "gemma3n"],
        json: r#"{"vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384,
            "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2,
            "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "sliding_window": 512,
            "sliding_window_pattern": 5, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
            "final_logit_softcapping": 30.0, "vocab_size_per_layer_input": 262144,
            "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 15,
            "altup_num_inputs": 4, "altup_active_idx": 0, "tie_word_embeddings": true}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["gemma4_text", "gemma4"],
        json: r#"{"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
            "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4,
            "head_dim": 256, "global_head_dim": 512, "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6, "sliding_window": 512, "sliding_window_pattern": 6,
            "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0,
            "use_double_wide_mlp": false, "attention_k_eq_v": false, "enable_moe_block": false,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                    "rope_theta": 1e6}},
            "tie_word_embeddings": true}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["bitnet"],
        json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
            "num_key_value_heads": 5, "hidden_act": "relu2", "rope_theta": 5e5}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["gpt2"],
        json: r#"{"n_positions": 1024, "layer_norm_epsilon": 1e-5,
            "activation_function": "gelu_new"}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["starcoder2"],
        json: r#"{"max_position_embeddings": 4096, "norm_epsilon": 1e-5,
            "num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh"}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["bert"],
        json: r#"{"max_position_embeddings": 512, "layer_norm_eps": 1e-12,
            "hidden_act": "gelu", "is_causal": false}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["roberta", "xlm-roberta"],
        json: r#"{"max_position_embeddings": 512, "layer_norm_eps": 1e-12,
            "hidden_act": "gelu", "is_causal": false, "pad_token_id": 1}"#,
        rule: Some(ConfigRule::PositionsAfterPadding),
    },
    HfDefaults {
        model_types: &["nomic_bert"],
        json: r#"{"max_position_embeddings": 2048, "layer_norm_eps": 1e-12,
            "hidden_act": "silu", "rope_theta": 1000.0, "is_causal": false}"#,
        ..NONE
    },
    HfDefaults {
        model_types: &["modernbert"],
        json: r#"{"max_position_embeddings": 8192, "norm_eps": 1e-5,
            "hidden_activation": "gelu", "local_attention": 128, "global_attn_every_n_layers": 3,
            "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "is_causal": false,
            "classifier_pooling": "cls"}"#,
        ..NONE
    },
];

/// Returns the defaults of a `model_type`.
pub(crate) fn hf_defaults(model_type: &str) -> &'static HfDefaults {
    let mut all = DEFAULTS.iter();
    all.find(|c| c.model_types.contains(&model_type))
        .unwrap_or(&NONE)
}
