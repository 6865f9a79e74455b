//! Qwen 3 MoE: Qwen 3's attention and a mixture of experts.

use super::parts::Layer;
use super::stack;
use super::{Config, experts, qwen3};
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, block);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    qwen3::attention(b, c, l, h);
    experts::feed_forward(b, c, l, h);
}
