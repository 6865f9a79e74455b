//! Granite 4 H: Granite with a state-space model instead of attention in most layers, and no RoPE.

use super::parts::Layer;
use super::stack;
use super::{Config, experts, mamba2};
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, block);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    if l.config.mixer.has_state() {
        let y = mamba2::mixer(b, c, l, n);
        l.project_add(b, c, "ssm_out", y, h);
    } else {
        let qkv = l.qkv(b, c, n);
        let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
        l.project_add(b, c, "attn_output", a, h);
    }
    experts::feed_forward(b, c, l, h);
}

/// Files say by the flag of fine-tuned RoPE whether there is RoPE at all.
pub(super) fn defaults(c: &mut Config) {
    if c.per_layer.rope_finetuned == Some(false) {
        c.default_rope_layers(|_| false);
    }
}
