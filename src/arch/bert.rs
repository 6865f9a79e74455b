//! Encoders: BERT and RoBERTa, Nomic BERT (with RoPE), ModernBERT. Attention is bidirectional, and
//! the rows of a batch are concatenated whole texts.

use super::Config;
use super::layer_config::SlidingPattern;
use super::parts::{self, Layer};
use crate::op::builder::{Builder, X};

/// BERT: learned positions, post-norm.
pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    add_first_type(b, c, h);
    let positions = b.weight("position_embd.weight", c.context, c.dim);
    b.embed_add(positions, h, 1, 0);
    post_norm_layers(b, c, h, |b, c, l, h| {
        let f = l.project(b, c, "ffn_up", l.config.ffn, h); // [tokens, ffn]
        l.activate(b, c, f);
        f
    });
}

/// Nomic BERT: RoPE and a gated feed-forward layer.
pub(super) fn nomic(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    add_first_type(b, c, h);
    post_norm_layers(b, c, h, |b, c, l, h| l.gated(b, c, h));
}

/// ModernBERT: pre-norm, sliding windows in most layers.
pub(super) fn modern(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    let h = norm(b, c, "token_embd_norm", h);
    b.point(parts::EMBEDDING, h);
    for l in parts::layers(c) {
        // The first layer uses the norm of the embeddings.
        let n = match l.index {
            0 => h,
            _ => norm(b, c, &l.tensor("attn_norm"), h),
        };
        let a = attention(b, c, l, n); // [tokens, heads head_dim]
        l.project_add(b, c, "attn_output", a, h); // h += Wo a
        let n = norm(b, c, &l.tensor("ffn_norm"), h);
        let f = l.gated(b, c, n); // [tokens, ffn]
        l.project_add(b, c, "ffn_down", f, h);
        b.end_of_layer(h);
    }
    let n = norm(b, c, "output_norm", h);
    b.ends_with(n);
}

/// Layer norm `name` without a bias.
fn norm(b: &mut Builder<'_>, c: &Config, name: &str, x: X) -> X {
    let w = b.vector(&format!("{name}.weight"), x.cols());
    let y = b.layer_norm(x, w, c.eps);
    b.point(name, y);
    y
}

/// Norm of the embeddings, then post-norm layers.
fn post_norm_layers(
    b: &mut Builder<'_>,
    c: &Config,
    h: X,
    feed_forward: fn(&mut Builder<'_>, &Config, Layer, X) -> X,
) {
    let mut h = parts::layer_norm(b, c, "token_embd_norm", h);
    b.point(parts::EMBEDDING, h);
    for l in parts::layers(c) {
        let a = attention(b, c, l, h); // [tokens, heads head_dim]
        l.project_add(b, c, "attn_output", a, h); // h += Wo a
        h = l.layer_norm(b, c, "attn_output_norm", h);
        let f = feed_forward(b, c, l, h); // [tokens, ffn]
        l.project_add(b, c, "ffn_down", f, h);
        h = l.layer_norm(b, c, "layer_output_norm", h);
        b.end_of_layer(h);
    }
    b.ends_with(h);
}

/// Bidirectional attention within each text, `[tokens, heads head_dim]`.
fn attention(b: &mut Builder<'_>, c: &Config, l: Layer, n: X) -> X {
    let [q, k, v] = l.qkv(b, c, n);
    let (at, rope) = (l.heads(), l.rope(c));
    if rope.dim > 0 {
        b.rope(at.heads, at.head_dim, rope, q);
        b.rope(at.kv_heads, at.head_dim, rope, k);
        b.point(&l.tensor("attn_q_rope"), q);
        b.point(&l.tensor("attn_k_rope"), k);
    }
    // A window extends by half its size to each side.
    let reach = match at.window {
        0 => u32::MAX,
        window => window / 2,
    };
    let (heads, scale) = ([at.heads, at.kv_heads, at.head_dim], l.attention_scale(c));
    b.self_attention_point(&l.tensor("attn_weights"), heads, [q, k], (scale, reach));
    let a = b.self_attention(heads, [q, k, v], scale, reach);
    b.point(&l.tensor("attn"), a);
    a
}

/// Adds the embedding of token type 0; inputs are single texts.
fn add_first_type(b: &mut Builder<'_>, c: &Config, h: X) {
    let types = b.rows_of("token_types.weight").max(1);
    let types = b.weight("token_types.weight", types, c.dim);
    b.embed_add(types, h, 0, 0);
}

/// No RoPE: positions are learned.
pub(super) fn defaults(c: &mut Config) {
    c.biased = true;
    c.default_rope_layers(|_| false);
}

/// Defaults of ModernBERT.
pub(super) fn defaults_modern(c: &mut Config) {
    c.default_sliding_pattern(SlidingPattern::Periodic {
        period: 3,
        full_first: true,
    });
    c.default_window_theta(10_000.0);
}
