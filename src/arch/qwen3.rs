//! Qwen 3: Llama's block with every head of Q and K normed before it is turned.

use super::Config;
use super::parts::{self, Layer};
use crate::op::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    for layer in 0..c.layers {
        block(b, c, Layer(layer), h);
    }
    parts::head(b, c, h);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let norm = l.norm(b, "attn_norm", c.dim);
    let n = b.rms_norm(h, norm, c.eps); // [tokens, dim]
    let q = l.project(b, "attn_q", c.q_dim(), n); // [tokens, heads head_dim]
    let k = l.project(b, "attn_k", c.kv_dim(), n); // [tokens, kv_heads head_dim]
    let v = l.project(b, "attn_v", c.kv_dim(), n);
    let (q_norm, k_norm) = (
        l.norm(b, "attn_q_norm", c.head_dim),
        l.norm(b, "attn_k_norm", c.head_dim),
    );
    let q = b.rms_norm(q, q_norm, c.eps); // each head apart
    let k = b.rms_norm(k, k_norm, c.eps);
    b.rope_kv(l.heads(c), l.rope(c), q, k, v);
    let a = b.attention(l.heads(c), q, parts::attention_scale(c), 0.0); // [tokens, heads head_dim]
    l.project_add(b, "attn_output", a, h); // h += Wo a
    l.feed_forward(b, c, h);
}
