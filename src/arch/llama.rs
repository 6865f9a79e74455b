//! Llama 2 and 3, Mistral, Ministral, Mixtral, SmolLM, Granite, Phi 3 and 4, Gemma 1: pre-norm
//! grouped-query attention and a gated feed-forward layer. `h` is the residual stream.
//!
//! These models differ only in hyperparameters: layers with RoPE, scales, the factor of queries,
//! activation. Phi's fused matrices are split while loading.

use super::parts::Layer;
use super::stack;
use super::{Config, experts};
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, block);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
    experts::feed_forward(b, c, l, h); // dense, except in Mixtral
}

/// SmolLM 3: every fourth layer has no RoPE.
pub(super) fn smollm3(c: &mut Config) {
    c.default_rope_layers(|layer| !(layer + 1).is_multiple_of(4));
}

/// Gemma: scaled embeddings; early files say `gelu` but mean its tanh approximation.
pub(super) fn gemma(c: &mut Config) {
    c.scale_embeddings();
    c.use_gelu_tanh();
}
