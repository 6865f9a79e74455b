//! Qwen 2 MoE: Qwen 2's attention, and a mixture of experts with a gated shared expert.

use super::family::{Arch, DEFAULT, HfModel};
use super::parts::Layer;
use super::{Config, experts, names, qwen2, stack};
use crate::plan::builder::{Builder, Router, X};

pub(super) const ARCH: Arch = Arch {
    name: "qwen2moe",
    hf: &[HfModel {
        types: &["qwen2_moe"],
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "num_key_value_heads": 16, "use_sliding_window": false, "max_window_layers": 28,
            "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632, "norm_topk_prob": false}"#,
        ..HfModel::DEFAULT
    }],
    names: &names::QWEN_MOE,
    router: Router::softmax(0),
    defaults,
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    qwen2::attention(b, c, l, h);
    experts::feed_forward(b, c, l, h);
}

/// Early files do not have the widths of experts.
fn defaults(c: &mut Config) {
    c.experts.shared_gate = true;
    if c.experts.width == 0 {
        c.experts.width = c.ffn.width / c.experts.router.k.max(1);
    }
    if c.experts.shared_width == 0 {
        c.experts.shared_width = c.ffn.width;
    }
}
