//! Phi 3.5 MoE: Llama's block with layer norms, biases, and a mixture of experts selected by
//! `SparseMixer`.

use super::parts::{self, Layer};
use super::rope::RopeScaling;
use super::stack;
use super::{Config, experts};
use crate::plan::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    stack::layers(b, c, block, h);
    parts::layer_norm_head(b, c, h);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.layer_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
    let n = l.layer_norm(b, c, "ffn_norm", h);
    experts::mixture(b, c, l, [n, h]);
}

/// Attention factor of the published model, and Phi 3's for the same context lengths, which llama.cpp's
/// converter writes instead.
const MAGNITUDE: f32 = 1.243_163_1;
const PHI3_MAGNITUDE: f32 = 1.190_238_1;

/// Corrects the attention factor of files of llama.cpp's converter.
pub(super) fn defaults(c: &mut Config) {
    if let RopeScaling::Long { magnitudes, .. } = &mut c.ropes[0].scaling
        && magnitudes.iter().all(|m| (m - PHI3_MAGNITUDE).abs() < 1e-5)
    {
        *magnitudes = [MAGNITUDE; 2];
    }
}
