//! Llama 2 and 3, Mistral, SmolLM, Granite, Phi 3 and 4, Gemma 1: pre-norm grouped-query
//! attention and a gated feed-forward layer. `h` is the residual stream.
//!
//! What these differ in are numbers: which layers turn by position, what results are scaled by,
//! the activation. Phi's fused matrices come apart while loading.

use super::Config;
use super::parts::{self, Layer};
use crate::op::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    parts::decoder(b, c, block);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
    l.feed_forward(b, c, h);
}

/// Every fourth layer of SmolLM 3 knows no positions.
pub(super) fn smollm3(c: &mut Config) {
    c.turn_layers(|layer| !(layer + 1).is_multiple_of(4));
}

/// Gemma's embeddings are scaled; its first files say `gelu` and mean the one by tanh.
pub(super) fn gemma(c: &mut Config) {
    c.scale_embeddings();
    c.gelu_by_tanh();
}
