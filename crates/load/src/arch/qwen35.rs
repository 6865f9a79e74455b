//! Qwen 3.5 and Qwen 3 Next: layers with the gated delta rule, and attention with an output gate in every n-th
//! layer; feed-forward layers or mixtures of experts.

use super::delta_net::{self, delta_net};
use super::family::{Arch, ConfigRule, DEFAULT, HeadBlock, HfModel};
use super::layer_config::RecurrentPattern;
use super::names::{self, Names};
use super::parts::{self, Layer};
use super::recurrent_config::RecurrentKind;
use super::{Config, drafting, experts, stack};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, X};

pub(super) const QWEN35: Arch = Arch {
    name: "qwen35",
    hf: &[HfModel {
        types: &["qwen3_5", "qwen3_5_text"],
        json: r#"{"vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288,
            "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 4,
            "head_dim": 256, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
            "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
            "rope_theta": 1e7, "partial_rotary_factor": 0.25, "tie_word_embeddings": false}"#,
        rule: Some(ConfigRule::PartialRotary),
        ..HfModel::DEFAULT
    }],
    names: &Names {
        layer: &[
            &[
                ("input_layernorm", "attn_norm"),
                ("post_attention_layernorm", "post_attention_norm"),
            ],
            names::ATTENTION,
            names::FEED_FORWARD,
            names::EXPERTS,
            names::SHARED_EXPERT,
            delta_net::NAMES,
            &[
                ("fc", "nextn.eh_proj"),
                ("pre_fc_norm_embedding", "nextn.enorm"),
                ("pre_fc_norm_hidden", "nextn.hnorm"),
                ("norm", "nextn.shared_head_norm"),
            ],
        ],
        predictor: Some("mtp."),
        ..names::LLAMA
    },
    norms_plus_one: true,
    recurrent: Some(RecurrentKind::DeltaNet),
    interleaved_heads: true,
    defaults,
    mtp: Some(HEAD),
    recipe,
    ..DEFAULT
};

pub(super) const QWEN35_MOE: Arch = Arch {
    name: "qwen35moe",
    hf: &[HfModel {
        types: &["qwen3_5_moe", "qwen3_5_moe_text"],
        json: r#"{"vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40,
            "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "full_attention_interval": 4,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
            "linear_num_key_heads": 16, "linear_num_value_heads": 32, "num_experts": 256,
            "num_experts_per_tok": 8, "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512, "rope_theta": 1e7,
            "partial_rotary_factor": 0.25, "tie_word_embeddings": false}"#,
        rule: Some(ConfigRule::PartialRotary),
        ..HfModel::DEFAULT
    }],
    ..QWEN35
};

pub(super) const QWEN3_NEXT: Arch = Arch {
    name: "qwen3next",
    hf: &[HfModel {
        types: &["qwen3_next"],
        json: r#"{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "head_dim": 256,
            "num_key_value_heads": 2, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32, "num_experts": 512, "num_experts_per_tok": 10,
            "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
            "norm_topk_prob": true, "partial_rotary_factor": 0.25}"#,
        rule: Some(ConfigRule::PartialRotary),
        ..HfModel::DEFAULT
    }],
    interleaved_heads: false,
    ..QWEN35
};

fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    let taps = stack::layers(b, c, block, h);
    drafting::follow(b, c, h, &taps);
    parts::head(b, c, h);
}

/// The block of an MTP head has attention.
const HEAD: HeadBlock = HeadBlock {
    block,
    store: store_keys_values,
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    mix(b, c, l, h);
    let n = l.rms_norm(b, c, "post_attention_norm", h); // [tokens, dim]
    if l.config.experts > 0 {
        experts::mixture(b, c, l, [n, h]);
        return;
    }
    let f = l.gated(b, c, n); // [tokens, ffn]
    l.project_add(b, c, "ffn_down", f, h);
}

/// `h += mix(norm h)`: the delta rule or attention.
fn mix(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    if l.config.mixer.has_state() {
        delta_net(b, c, l, h);
    } else {
        attention(b, c, l, h);
    }
}

/// `h += Wo (attention(norm h) * sigmoid(gate))`. The rows of a head in `attn_q` are its query, then its gate.
fn attention(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let (heads, head_dim) = (l.config.heads, l.config.head_dim);
    let q = l.project(b, c, "attn_q", 2 * l.config.q_dim(), n); // [tokens, heads 2 head_dim]
    let [k, v] = keys_values(b, c, l, n);
    let gate = b.columns_of_groups(q, heads, [head_dim, head_dim]); // [tokens, heads head_dim]
    let q = b.columns_of_groups(q, heads, [0, head_dim]);
    let q = l.head_norm(b, c, "attn_q_norm", q);
    let a = l.attend(b, c, [q, k, v]); // [tokens, heads head_dim]
    let a = b.glu(Activation::Sigmoid, gate, a);
    l.project_add(b, c, "attn_output", a, h);
}

/// K before RoPE and V, `[tokens, kv_heads head_dim]`.
fn keys_values(b: &mut Builder<'_>, c: &Config, l: Layer, n: X) -> [X; 2] {
    let k = l.project(b, c, "attn_k", l.config.kv_dim(), n);
    let v = l.project(b, c, "attn_v", l.config.kv_dim(), n);
    [l.head_norm(b, c, "attn_k_norm", k), v]
}

/// Stores the keys and values of a layer with attention.
fn store_keys_values(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let [k, v] = keys_values(b, c, l, n);
    l.store_kv(b, c, [n, k, v]);
}

/// Defaults of files without these keys.
fn defaults(c: &mut Config) {
    c.experts.shared_gate = true;
    if let (Some(_), RecurrentPattern::None) = (&c.recurrent, &c.per_layer.recurrent) {
        c.per_layer.recurrent = RecurrentPattern::Periodic(4);
    }
}
