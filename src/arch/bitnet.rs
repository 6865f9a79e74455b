//! BitNet b1.58: Llama's block with a norm before each output projection. The builder quantizes
//! activations to int8 for ternary weights, based on the storage type.

use super::Config;
use super::parts::Layer;
use super::stack;
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, block);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    let a = l.rms_norm(b, c, "attn_sub_norm", a);
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
    let n = l.rms_norm(b, c, "ffn_norm", h); // [tokens, dim]
    let f = l.gated(b, c, n); // [tokens, ffn]
    let f = l.rms_norm(b, c, "ffn_sub_norm", f);
    l.project_add(b, c, "ffn_down", f, h);
}
