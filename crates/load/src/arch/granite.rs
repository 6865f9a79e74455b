//! Granite 3 and 4: Llama's block with scales. Granite 4 H has a state-space model instead of attention in most
//! layers, and no RoPE.

use super::family::{Arch, ConfigRule, DEFAULT, HfModel, RopePairs};
use super::layer_config::MixerRule;
use super::names::{self, Names, Pairs};
use super::parts::Layer;
use super::recurrent_config::RecurrentKind;
use super::{Config, experts, mamba2, stack};
use crate::plan::builder::{Builder, X};

pub(super) const GRANITE: Arch = Arch {
    name: "granite",
    hf: &[HfModel {
        types: &["granite"],
        class: Some("GraniteForCausalLM"),
        json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6}"#,
        ..HfModel::DEFAULT
    }],
    rope_pairs: RopePairs::Permuted,
    names: &Names {
        layer: &[
            names::PRE_NORMS,
            names::ATTENTION,
            names::FEED_FORWARD,
            mamba2::NAMES,
            SHARED_MLP,
            names::BLOCK_SPARSE_MOE,
        ],
        split: &[
            (
                "ffn_gate_up_shexp",
                &["ffn_gate", "ffn_up", "ffn_gate_shexp", "ffn_up_shexp"],
            ),
            ("ffn_down_shexp", &["ffn_down"]),
        ],
        ..names::LLAMA
    },
    defaults,
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
};

pub(super) const GRANITE_MOE: Arch = Arch {
    name: "granitemoe",
    hf: &[HfModel {
        types: &["granitemoe", "granitemoeshared"],
        json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "num_local_experts": 8,
            "num_experts_per_tok": 2, "embedding_multiplier": 1.0, "logits_scaling": 1.0,
            "residual_multiplier": 1.0, "attention_multiplier": 1.0}"#,
        ..HfModel::DEFAULT
    }],
    ..GRANITE
};

/// Its GGUF files have the names of the others if no layer has a state-space model.
pub(super) const GRANITE_HYBRID: Arch = Arch {
    name: "granitehybrid",
    hf: &[HfModel {
        types: &["granitemoehybrid"],
        json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "num_local_experts": 8,
            "num_experts_per_tok": 2, "shared_intermediate_size": 1024, "embedding_multiplier": 1.0,
            "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
            "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
            "mamba_expand": 2, "tie_word_embeddings": false}"#,
        rule: Some(ConfigRule::OptionalRope),
        ..HfModel::DEFAULT
    }],
    variant: |traits| match (traits.has_states(), traits.experts) {
        (true, _) => None,
        (false, 0) => Some(GRANITE.name),
        (false, _) => Some(GRANITE_MOE.name),
    },
    rope_pairs: RopePairs::HalfSplit,
    recurrent: Some(RecurrentKind::Ssm),
    mixers: MixerRule::WithoutHeads,
    ..GRANITE
};

/// A shared feed-forward layer, whose matrices of gate and up projection are fused in Hugging Face's files.
const SHARED_MLP: Pairs = &[
    ("shared_mlp.input_linear", "ffn_gate_up_shexp"),
    ("shared_mlp.output_linear", "ffn_down_shexp"),
    ("block_sparse_moe.router.layer", "ffn_gate_inp"),
    ("block_sparse_moe.input_linear", "ffn_gate_up_exps"),
    ("block_sparse_moe.output_linear", "ffn_down_exps"),
];

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    if l.config.mixer.has_state() {
        let y = mamba2::mixer(b, c, l, n);
        l.project_add(b, c, "ssm_out", y, h);
    } else {
        let qkv = l.qkv(b, c, n);
        let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
        l.project_add(b, c, "attn_output", a, h);
    }
    experts::feed_forward(b, c, l, h);
}

/// Files say by the flag of fine-tuned RoPE whether there is RoPE at all.
fn defaults(c: &mut Config) {
    if c.per_layer.rope_finetuned == Some(false) {
        c.default_rope_layers(|_| false);
    }
}
