//! GPT-2: learned positions, layer norms, biases everywhere, no gate.

use super::Config;
use super::parts::{self, Layer};
use super::stack;
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    let positions = b.weight("position_embd.weight", c.context, c.dim);
    b.embed_add(positions, h, 1, 0);
    layers(b, c, h);
}

/// Emits the layers and the output projection.
pub(super) fn layers(b: &mut Builder<'_>, c: &Config, h: X) {
    stack::layers(b, c, block, h);
    parts::layer_norm_head(b, c, h);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.layer_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
    let n = l.layer_norm(b, c, "ffn_norm", h);
    let f = l.project(b, c, "ffn_up", l.config.ffn, n); // [tokens, ffn]
    l.activate(b, c, f);
    l.project_add(b, c, "ffn_down", f, h);
}

/// No RoPE: positions are learned.
pub(super) fn defaults(c: &mut Config) {
    c.biased = true;
    c.default_rope_layers(|_| false);
}
