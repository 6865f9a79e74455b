//! Qwen 2 and 2.5: Llama's block with biases on Q, K and V.

use super::family::{Arch, DEFAULT, HfModel};
use super::parts::Layer;
use super::{Config, stack};
use crate::plan::builder::{Builder, X};

pub(super) const ARCH: Arch = Arch {
    name: "qwen2",
    hf: &[HfModel {
        types: &["qwen2"],
        class: Some("Qwen2ForCausalLM"),
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "use_sliding_window": false, "max_window_layers": 28}"#,
        ..HfModel::DEFAULT
    }],
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    attention(b, c, l, h);
    l.feed_forward(b, c, h);
}

/// `h += Wo attention(norm h)`.
pub(super) fn attention(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let q = l.project_biased(b, "attn_q", l.config.q_dim(), n); // [tokens, heads head_dim]
    let k = l.project_biased(b, "attn_k", l.config.kv_dim(), n); // [tokens, kv_heads head_dim]
    let v = l.project_biased(b, "attn_v", l.config.kv_dim(), n);
    let a = l.attend(b, c, [q, k, v]); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
}
