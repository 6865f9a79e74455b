//! Qwen 2 and 2.5: Llama's block with biases on Q, K and V.

use super::Config;
use super::parts::Layer;
use super::stack;
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, block);
}

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
