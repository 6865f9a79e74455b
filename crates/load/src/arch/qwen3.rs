//! Qwen 3: Llama's block with QK norm before RoPE.

use super::family::{Arch, DEFAULT, HfModel};
use super::names::{self, Names, Pairs};
use super::parts::Layer;
use super::{Config, stack};
use crate::plan::builder::{Builder, X};

pub(super) const ARCH: Arch = Arch {
    name: "qwen3",
    hf: &[HfModel {
        types: &["qwen3"],
        class: Some("Qwen3ForCausalLM"),
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "head_dim": 128,
            "use_sliding_window": false, "max_window_layers": 28}"#,
        ..HfModel::DEFAULT
    }],
    names: &Names {
        layer: &[
            names::PRE_NORMS,
            names::ATTENTION,
            names::FEED_FORWARD,
            NORMS_IN,
        ],
        ..names::LLAMA
    },
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
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

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    attention(b, c, l, h);
    l.feed_forward(b, c, h);
}

/// `h += Wo attention(norm h)`.
pub(super) fn attention(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let [q, k, v] = l.qkv(b, c, n);
    let q = l.head_norm(b, c, "attn_q_norm", q); // per head
    let k = l.head_norm(b, c, "attn_k_norm", k);
    let a = l.attend(b, c, [q, k, v]); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
}
