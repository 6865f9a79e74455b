//! Qwen 2 MoE: Qwen 2's attention, and a mixture of experts with a gated shared expert.

use super::parts::Layer;
use super::stack;
use super::{Config, experts, qwen2};
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, block);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    qwen2::attention(b, c, l, h);
    experts::feed_forward(b, c, l, h);
}

/// Early files do not have the widths of experts.
pub(super) fn defaults(c: &mut Config) {
    c.shared_gate = true;
    if c.expert_ffn == 0 {
        c.expert_ffn = c.ffn / c.router.k.max(1);
    }
    if c.shared_ffn == 0 {
        c.shared_ffn = c.ffn;
    }
}
