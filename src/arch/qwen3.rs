//! Qwen 3: Llama's block with QK norm before RoPE.

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
    let [q, k, v] = l.qkv(b, c, n);
    let q = l.head_norm(b, c, "attn_q_norm", q); // per head
    let k = l.head_norm(b, c, "attn_k_norm", k);
    let a = l.attend(b, c, [q, k, v]); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
}
