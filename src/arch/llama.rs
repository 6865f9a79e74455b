//! Llama 2 and 3: pre-norm grouped-query attention, gated SiLU. `h` is the residual stream.

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
    b.rope_kv(l.heads(c), l.rope(c), q, k, v);
    let a = b.attention(l.heads(c), q, parts::attention_scale(c), 0.0); // [tokens, heads head_dim]
    l.project_add(b, "attn_output", a, h); // h += Wo a
    l.feed_forward(b, c, h);
}
