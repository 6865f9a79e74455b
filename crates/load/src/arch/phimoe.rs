//! Phi 3.5 MoE: Llama's block with layer norms, biases, and a mixture of experts selected by
//! `SparseMixer`.

use super::family::{Arch, DEFAULT, HfModel};
use super::parts::{self, Layer};
use super::rope::RopeScaling;
use super::{Config, experts, names, stack};
use crate::op::functions::ExpertScore;
use crate::plan::builder::{Builder, Router, X};

pub(super) const ARCH: Arch = Arch {
    name: "phimoe",
    hf: &[HfModel {
        types: &["phimoe"],
        json: r#"{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
            "num_key_value_heads": 8, "rope_theta": 1e6, "num_local_experts": 16,
            "num_experts_per_tok": 2, "router_jitter_noise": 0.01}"#,
        ..HfModel::DEFAULT
    }],
    names: &names::MIXTRAL,
    router: Router {
        score: ExpertScore::SparseMixer,
        eps: 0.02,
        ..Router::softmax(0)
    },
    defaults,
    recipe,
    ..DEFAULT
};

fn recipe(b: &mut Builder<'_>, c: &Config) {
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
fn defaults(c: &mut Config) {
    if let RopeScaling::Long { magnitudes, .. } = &mut c.rope.rotations[0].scaling
        && magnitudes.iter().all(|m| (m - PHI3_MAGNITUDE).abs() < 1e-5)
    {
        *magnitudes = [MAGNITUDE; 2];
    }
}
