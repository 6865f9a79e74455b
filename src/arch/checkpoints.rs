//! What is special about the configurations of Hugging Face, by `model_type`.

/// What the configurations of some models leave unsaid.
#[derive(Debug)]
pub struct Checkpoint {
    /// Their `model_type`.
    pub model_types: &'static [&'static str],
    /// What `transformers` takes for keys that are absent: JSON, as it would stand in the file.
    pub defaults: &'static str,
    /// What their files mean that others do not.
    pub quirk: Option<Quirk>,
}

/// What the files of some models mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// Position 0 has the row behind the padding token's number.
    PositionsBehindPadding,
    /// `partial_rotary_factor` counts; models without this turn whole heads whatever it says.
    PartialRotary,
}

const PLAIN: Checkpoint = Checkpoint {
    model_types: &[],
    defaults: "{}",
    quirk: None,
};

/// The defaults are those of the configuration classes of `transformers` 5, as far as files were
/// written without them. Nested configurations have only what differs, and so all stand here.
const CHECKPOINTS: &[Checkpoint] = &[
    Checkpoint {
        model_types: &["llama", "granite"],
        defaults: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["mistral"],
        defaults: r#"{"max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
            "num_key_value_heads": 8, "sliding_window": 4096}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["smollm3"],
        defaults: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "num_key_value_heads": 4, "rope_theta": 2e6, "no_rope_layer_interval": 4,
            "use_sliding_window": false}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["phi3"],
        defaults: r#"{"max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
            "original_max_position_embeddings": 4096}"#,
        quirk: Some(Quirk::PartialRotary),
    },
    Checkpoint {
        model_types: &["olmo2"],
        defaults: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-5}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["qwen2"],
        defaults: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "use_sliding_window": false, "max_window_layers": 28}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["qwen3"],
        defaults: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "head_dim": 128,
            "use_sliding_window": false, "max_window_layers": 28}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["qwen3_moe"],
        defaults: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "num_key_value_heads": 4, "use_sliding_window": false, "num_experts": 128,
            "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": false}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["gemma"],
        defaults: r#"{"max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "head_dim": 256,
            "num_key_value_heads": 16}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["gemma2"],
        defaults: r#"{"max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "head_dim": 256,
            "num_attention_heads": 8, "num_key_value_heads": 4, "query_pre_attn_scalar": 256,
            "sliding_window": 4096, "sliding_window_pattern": 2, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["gemma3_text", "gemma3"],
        defaults: r#"{"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
            "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
            "head_dim": 256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
            "query_pre_attn_scalar": 256, "sliding_window": 4096, "sliding_window_pattern": 6,
            "rope_theta": 1e6, "rope_local_base_freq": 1e4, "tie_word_embeddings": true}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["gemma4_text", "gemma4"],
        defaults: r#"{"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
            "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4,
            "head_dim": 256, "global_head_dim": 512, "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6, "sliding_window": 512, "sliding_window_pattern": 6,
            "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0,
            "use_double_wide_mlp": false, "attention_k_eq_v": false,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                    "rope_theta": 1e6}},
            "tie_word_embeddings": true}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["bitnet"],
        defaults: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
            "num_key_value_heads": 5, "hidden_act": "relu2", "rope_theta": 5e5}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["gpt2"],
        defaults: r#"{"n_positions": 1024, "layer_norm_epsilon": 1e-5,
            "activation_function": "gelu_new"}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["starcoder2"],
        defaults: r#"{"max_position_embeddings": 4096, "norm_epsilon": 1e-5,
            "num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh"}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["bert"],
        defaults: r#"{"max_position_embeddings": 512, "layer_norm_eps": 1e-12,
            "hidden_act": "gelu", "is_causal": false}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["roberta", "xlm-roberta"],
        defaults: r#"{"max_position_embeddings": 512, "layer_norm_eps": 1e-12,
            "hidden_act": "gelu", "is_causal": false, "pad_token_id": 1}"#,
        quirk: Some(Quirk::PositionsBehindPadding),
    },
    Checkpoint {
        model_types: &["nomic_bert"],
        defaults: r#"{"max_position_embeddings": 2048, "layer_norm_eps": 1e-12,
            "hidden_act": "silu", "rope_theta": 1000.0, "is_causal": false}"#,
        ..PLAIN
    },
    Checkpoint {
        model_types: &["modernbert"],
        defaults: r#"{"max_position_embeddings": 8192, "norm_eps": 1e-5,
            "hidden_activation": "gelu", "local_attention": 128, "global_attn_every_n_layers": 3,
            "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "is_causal": false}"#,
        ..PLAIN
    },
];

/// What is special about the configurations of this `model_type`.
pub fn checkpoint(model_type: &str) -> &'static Checkpoint {
    let mut all = CHECKPOINTS.iter();
    all.find(|c| c.model_types.contains(&model_type))
        .unwrap_or(&PLAIN)
}
