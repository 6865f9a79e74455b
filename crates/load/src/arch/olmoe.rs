//! `OLMoE`: Llama's block with QK norm over all heads, and a mixture of experts.

use super::family::{Arch, DEFAULT, HfModel};
use super::parts::Layer;
use super::{Config, experts, names, stack};
use crate::plan::builder::{Builder, Router, X};

pub(super) const ARCH: Arch = Arch {
    name: "olmoe",
    hf: &[HfModel {
        types: &["olmoe"],
        json: r#"{"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "num_experts": 64,
            "num_experts_per_tok": 8, "norm_topk_prob": false}"#,
        ..HfModel::DEFAULT
    }],
    names: &names::QWEN_MOE,
    router: Router::softmax(0),
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let [q, k, v] = l.qkv(b, c, n);
    let q = l.rms_norm(b, c, "attn_q_norm", q); // all heads together
    let k = l.rms_norm(b, c, "attn_k_norm", k);
    let a = l.attend(b, c, [q, k, v]); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
    experts::feed_forward(b, c, l, h);
}
