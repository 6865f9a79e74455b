//! OLMo 2: norms after attention and feed-forward layer, and QK norm over all heads.

use super::family::{Arch, DEFAULT, HfModel};
use super::layer_config::SlidingPattern;
use super::names::{self, Names};
use super::parts::Layer;
use super::{Config, stack};
use crate::plan::builder::{Builder, X};

pub(super) const ARCH: Arch = Arch {
    name: "olmo2",
    hf: &[HfModel {
        types: &["olmo2"],
        class: Some("Olmo2ForCausalLM"),
        json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-5}"#,
        ..HfModel::DEFAULT
    }],
    names: &Names {
        layer: &[names::SANDWICH, names::ATTENTION, names::FEED_FORWARD],
        ..names::LLAMA
    },
    defaults,
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let [q, k, v] = l.qkv(b, c, h);
    let q = l.rms_norm(b, c, "attn_q_norm", q); // all heads together
    let k = l.rms_norm(b, c, "attn_k_norm", k);
    let a = l.attend(b, c, [q, k, v]); // [tokens, heads head_dim]
    let o = l.project(b, c, "attn_output", c.dim, a); // [tokens, dim]
    let o = l.rms_norm(b, c, "post_attention_norm", o);
    b.add(o, h, 1.0);
    let f = l.gated(b, c, h); // [tokens, ffn]
    let o = l.project(b, c, "ffn_down", c.dim, f);
    let o = l.rms_norm(b, c, "post_ffw_norm", o);
    b.add(o, h, 1.0);
}

/// OLMo 3 files have the architecture OLMo 2, with sliding-window layers without RoPE scaling.
fn defaults(c: &mut Config) {
    c.default_sliding_pattern(SlidingPattern::Periodic {
        period: 4,
        full_first: false,
    });
    c.default_window_theta(c.rope.rotations[0].theta);
}
