//! `OLMoE`: Llama's block with QK norm over all heads, and a mixture of experts.

use super::parts::Layer;
use super::stack;
use super::{Config, experts};
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, block);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let [q, k, v] = l.qkv(b, c, n);
    let q = l.rms_norm(b, c, "attn_q_norm", q); // all heads together
    let k = l.rms_norm(b, c, "attn_k_norm", k);
    let a = l.attend(b, c, [q, k, v]); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
    experts::feed_forward(b, c, l, h);
}
