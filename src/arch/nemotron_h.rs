//! Nemotron-H and Nemotron 3: one mixer per layer, which is a state-space model, attention without RoPE, a
//! feed-forward layer without gate, or a mixture of such experts.

use super::parts::Layer;
use super::stack;
use super::{Config, experts, mamba2};
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, block);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let mixer = l.config.mixer;
    if mixer.has_state() {
        let y = mamba2::mixer(b, c, l, n);
        l.project_add(b, c, "ssm_out", y, h);
    } else if mixer.has_attention() {
        let qkv = l.qkv(b, c, n);
        let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
        l.project_add(b, c, "attn_output", a, h);
    } else if l.config.experts > 0 {
        experts::mixture(b, c, l, [n, h]);
    } else {
        let f = l.project(b, c, "ffn_up", l.config.ffn, n); // [tokens, ffn]
        l.activate(b, c, f);
        l.project_add(b, c, "ffn_down", f, h);
    }
}

/// No layer has RoPE, in spite of the keys in files, and no feed-forward layer a gate.
pub(super) fn defaults(c: &mut Config) {
    c.ungated = true;
    c.default_rope_layers(|_| false);
}
