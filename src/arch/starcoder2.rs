//! StarCoder 2: GPT-2's block with RoPE and grouped-query attention.

use super::{Config, gpt2, parts};
use crate::plan::builder::Builder;

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    gpt2::layers(b, c, h);
}
