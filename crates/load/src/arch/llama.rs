//! Llama 2 and 3, Mistral, Ministral, Mixtral, SmolLM, Phi 3 and 4, Gemma 1: pre-norm
//! grouped-query attention and a gated feed-forward layer. `h` is the residual stream.
//!
//! These models differ only in hyperparameters: layers with RoPE, scales, the factor of queries,
//! activation. Phi's fused matrices are split while loading.

use super::family::{Arch, ConfigRule, DEFAULT, GATE_UP, HfModel, QKV, RopePairs};
use super::names::{self, Names};
use super::parts::Layer;
use super::{Config, experts, stack};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, X};

pub(super) const LLAMA: Arch = Arch {
    name: "llama",
    hf: &[
        HfModel {
            types: &["llama"],
            class: Some("LlamaForCausalLM"),
            json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6}"#,
            ..HfModel::DEFAULT
        },
        HfModel {
            types: &["mistral"],
            class: Some("MistralForCausalLM"),
            json: r#"{"max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
                "num_key_value_heads": 8, "sliding_window": 4096}"#,
            ..HfModel::DEFAULT
        },
        HfModel {
            types: &["mixtral"],
            json: r#"{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                "num_key_value_heads": 8, "rope_theta": 1e6, "num_local_experts": 8,
                "num_experts_per_tok": 2}"#,
            ..HfModel::DEFAULT
        },
    ],
    rope_pairs: RopePairs::Permuted,
    names: &names::MIXTRAL,
    recipe,
    ..DEFAULT
};

/// Multimodal files, whose text model is of type `ministral3` or `mistral`, by default `mistral`.
pub(super) const MISTRAL3: Arch = Arch {
    name: "mistral3",
    hf: &[
        HfModel {
            types: &["ministral3"],
            json: r#"{"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336,
                "num_hidden_layers": 34, "num_attention_heads": 32, "num_key_value_heads": 8,
                "head_dim": 128, "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
                "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
                    "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
                    "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1},
                "tie_word_embeddings": false}"#,
            ..HfModel::DEFAULT
        },
        HfModel {
            types: &["mistral3"],
            json: r#"{"vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 32768,
                "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
                "head_dim": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                "rope_theta": 1e9}"#,
            ..HfModel::DEFAULT
        },
        HfModel {
            types: &["Mistral3ForConditionalGeneration"],
            ..HfModel::DEFAULT
        },
    ],
    rope_pairs: RopePairs::Permuted,
    recipe,
    ..DEFAULT
};

pub(super) const SMOLLM3: Arch = Arch {
    name: "smollm3",
    hf: &[HfModel {
        types: &["smollm3"],
        class: Some("SmolLM3ForCausalLM"),
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "num_key_value_heads": 4, "rope_theta": 2e6, "no_rope_layer_interval": 4,
            "use_sliding_window": false}"#,
        ..HfModel::DEFAULT
    }],
    rope_pairs: RopePairs::Permuted,
    defaults: |c| {
        // Every fourth layer has no RoPE.
        c.default_rope_layers(|layer| !(layer + 1).is_multiple_of(4));
    },
    recipe,
    ..DEFAULT
};

pub(super) const PHI3: Arch = Arch {
    name: "phi3",
    hf: &[HfModel {
        types: &["phi3"],
        json: r#"{"max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
            "original_max_position_embeddings": 4096}"#,
        rule: Some(ConfigRule::PartialRotary),
        ..HfModel::DEFAULT
    }],
    names: &Names {
        layer: &[
            names::PRE_NORMS,
            &[
                ("self_attn.qkv_proj", "attn_qkv"),
                ("self_attn.o_proj", "attn_output"),
                ("mlp.gate_up_proj", "ffn_gate_up"),
                ("mlp.down_proj", "ffn_down"),
            ],
        ],
        ..names::LLAMA
    },
    fused: &[QKV, GATE_UP],
    recipe,
    ..DEFAULT
};

pub(super) const GEMMA: Arch = Arch {
    name: "gemma",
    hf: &[HfModel {
        types: &["gemma"],
        json: r#"{"max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "head_dim": 256,
            "num_key_value_heads": 16}"#,
        ..HfModel::DEFAULT
    }],
    norms_plus_one: true,
    activation: Activation::GeluTanh,
    defaults: |c| {
        c.scale_embeddings();
        // Early files say `gelu` but mean its tanh approximation.
        c.use_gelu_tanh();
    },
    recipe,
    ..DEFAULT
};

fn recipe(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, block);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
    experts::feed_forward(b, c, l, h); // dense, except in Mixtral
}
