//! gpt-oss: attention with sinks, alternating windows, and a mixture of experts with biases and a clamped GLU.

use super::family::{Arch, DEFAULT, HfModel};
use super::layer_config::SlidingPattern;
use super::names::{self, Names};
use super::parts::Layer;
use super::rope::RopeScaling;
use super::{Config, experts, stack};
use crate::plan::builder::{Builder, GluClamp, X};

pub(super) const ARCH: Arch = Arch {
    name: "gpt-oss",
    hf: &[HfModel {
        types: &["gpt_oss"],
        json: r#"{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "head_dim": 64,
            "num_key_value_heads": 8, "num_local_experts": 128, "num_experts_per_tok": 4,
            "sliding_window": 128, "sliding_window_pattern": 2, "rope_theta": 150000.0,
            "swiglu_alpha": 1.702, "swiglu_limit": 7.0}"#,
        ..HfModel::DEFAULT
    }],
    names: &Names {
        layer: &[
            &[
                ("input_layernorm", "attn_norm"),
                ("post_attention_layernorm", "post_attention_norm"),
                ("self_attn.sinks", "attn_sinks"),
                ("mlp.router", "ffn_gate_inp"),
            ],
            names::ATTENTION,
            names::EXPERTS,
        ],
        ..names::LLAMA
    },
    transposed: &["ffn_gate_up_exps", "ffn_down_exps"],
    defaults,
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.qkv(b, c, n);
    l.rope_kv(b, c, qkv);
    let mut scores = l.scores(c);
    scores.sinks = Some(l.vector(b, "attn_sinks", l.config.heads));
    let a = l.attention_by(b, scores, qkv[0]); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a + bias
    let n = l.rms_norm(b, c, "post_attention_norm", h);
    experts::mixture(b, c, l, [n, h]);
}

/// Values that GGUF files do not contain.
fn defaults(c: &mut Config) {
    c.biased = true;
    c.default_sliding_pattern(SlidingPattern::Periodic {
        period: 2,
        full_first: false,
    });
    let clamp = c.experts.glu_clamp.get_or_insert(GluClamp {
        alpha: 1.702,
        limit: 7.0,
    });
    if clamp.alpha == 0.0 {
        clamp.alpha = 1.702;
    }
    for rope in &mut c.rope.rotations {
        if let RopeScaling::Yarn { truncate, .. } = &mut rope.scaling {
            truncate.get_or_insert(false);
        }
    }
}
