//! Qwen 3 MoE: Qwen 3's attention and a mixture of experts.

use super::family::{Arch, DEFAULT, HfModel};
use super::parts::Layer;
use super::{Config, experts, names, qwen3, stack};
use crate::plan::builder::{Builder, X};

pub(super) const ARCH: Arch = Arch {
    name: "qwen3moe",
    hf: &[HfModel {
        types: &["qwen3_moe"],
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "num_key_value_heads": 4, "use_sliding_window": false, "num_experts": 128,
            "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": false}"#,
        ..HfModel::DEFAULT
    }],
    names: &names::QWEN_MOE,
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    qwen3::attention(b, c, l, h);
    experts::feed_forward(b, c, l, h);
}
