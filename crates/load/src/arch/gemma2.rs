//! Gemma 2 and 3: norms before and after attention and feed-forward layer, sliding windows in most
//! layers. Gemma 2 softcaps attention scores and logits; Gemma 3 has QK norm. `EmbeddingGemma` is Gemma 3
//! with bidirectional attention.

use super::family::{Arch, DEFAULT, HfModel};
use super::layer_config::SlidingPattern;
use super::names::{self, Names};
use super::parts::Layer;
use super::{Config, stack};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, X};

pub(super) const GEMMA2: Arch = Arch {
    name: "gemma2",
    hf: &[HfModel {
        types: &["gemma2"],
        json: r#"{"max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "head_dim": 256,
            "num_attention_heads": 8, "num_key_value_heads": 4, "query_pre_attn_scalar": 256,
            "sliding_window": 4096, "sliding_window_pattern": 2, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0}"#,
        ..HfModel::DEFAULT
    }],
    names: &Names {
        layer: &[names::SANDWICH, names::ATTENTION, names::FEED_FORWARD],
        ..names::LLAMA
    },
    norms_plus_one: true,
    activation: Activation::GeluTanh,
    defaults,
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
};

pub(super) const GEMMA3: Arch = Arch {
    name: "gemma3",
    hf: &[
        TEXT,
        HfModel {
            types: &["gemma3"],
            ..TEXT
        },
    ],
    defaults: defaults3,
    recipe: recipe3,
    ..GEMMA2
};

pub(super) const EMBEDDING_GEMMA: Arch = Arch {
    name: "gemma-embedding",
    hf: &[TEXT],
    encoder: true,
    dense_modules: true,
    defaults: defaults_embedding,
    recipe: embedding,
    ..GEMMA2
};

/// Text models of Gemma 3.
const TEXT: HfModel = HfModel {
    types: &["gemma3_text"],
    json: r#"{"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "sliding_window_pattern": 6,
        "rope_theta": 1e6, "rope_local_base_freq": 1e4, "tie_word_embeddings": true}"#,
    ..HfModel::DEFAULT
};

fn recipe3(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, |b, c, l, h| block3(b, c, l, h, Layer::attend));
}

/// `EmbeddingGemma`.
fn embedding(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, |b, c, l, h| {
        block3(b, c, l, h, Layer::attend_both_ways);
    });
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    after_attention(b, c, l, a, h);
    feed_forward(b, c, l, h);
}

/// Attention of Q, K and V, `[tokens, heads head_dim]`.
type Attend = fn(Layer, &mut Builder<'_>, &Config, [X; 3]) -> X;

fn block3(b: &mut Builder<'_>, c: &Config, l: Layer, h: X, attend: Attend) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let [q, k, v] = l.qkv(b, c, n);
    let q = l.head_norm(b, c, "attn_q_norm", q); // per head
    let k = l.head_norm(b, c, "attn_k_norm", k);
    let a = attend(l, b, c, [q, k, v]); // [tokens, heads head_dim]
    after_attention(b, c, l, a, h);
    feed_forward(b, c, l, h);
}

/// `h += norm(Wo a)`.
pub(super) fn after_attention(b: &mut Builder<'_>, c: &Config, l: Layer, a: X, h: X) {
    let o = l.project(b, c, "attn_output", c.dim, a); // [tokens, dim]
    let o = l.rms_norm(b, c, "post_attention_norm", o);
    b.add(o, h, 1.0);
}

/// `h += norm(down(act(gate n) * up n))`.
pub(super) fn feed_forward(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "ffn_norm", h); // [tokens, dim]
    let f = l.gated(b, c, n); // [tokens, ffn]
    let o = l.project(b, c, "ffn_down", c.dim, f);
    let o = l.rms_norm(b, c, "post_ffw_norm", o);
    b.add(o, h, 1.0);
}

/// Defaults of Gemma 2.
fn defaults(c: &mut Config) {
    c.scale_embeddings();
    c.use_gelu_tanh();
    if c.attention.window == 0 {
        c.attention.window = 4096;
    }
    c.default_sliding_pattern(SlidingPattern::Periodic {
        period: 2,
        full_first: false,
    });
    // The only size whose scale is not `1 / sqrt(head_dim)`.
    c.default_attention_scale_of(46);
}

/// Defaults of Gemma 3.
fn defaults3(c: &mut Config) {
    c.scale_embeddings();
    c.use_gelu_tanh();
    c.default_sliding_pattern(SlidingPattern::Periodic {
        period: 6,
        full_first: false,
    });
    c.default_window_theta(10_000.0);
    c.default_attention_scale_of(62);
}

/// Defaults of `EmbeddingGemma`, whose GGUF files have no attention scale.
fn defaults_embedding(c: &mut Config) {
    defaults3(c);
    if c.attention.scale == 0.0 {
        c.attention.scale = (c.attention.head_dim as f32).powf(-0.5);
    }
}
