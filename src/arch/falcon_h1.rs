//! Falcon-H1: attention and a state-space model side by side in every layer.

use super::parts::Layer;
use super::stack;
use super::{Config, mamba2};
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, block);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let y = mamba2::mixer(b, c, l, n); // [tokens, inner]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    l.project_add(b, c, "ssm_out", y, h);
    l.project_add(b, c, "attn_output", a, h);
    l.feed_forward(b, c, h);
}
