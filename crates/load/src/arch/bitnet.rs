//! BitNet b1.58: Llama's block with a norm before each output projection. The builder quantizes
//! activations to int8 for ternary weights, based on the storage type.

use super::family::{Arch, DEFAULT, HfModel};
use super::names::{self, Names};
use super::parts::Layer;
use super::{Config, stack};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, X};

pub(super) const B1_58: Arch = Arch {
    name: "bitnet-b1.58",
    hf: &[
        HfModel {
            types: &["bitnet"],
            json: r#"{"max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                "num_key_value_heads": 5, "hidden_act": "relu2", "rope_theta": 5e5}"#,
            ..HfModel::DEFAULT
        },
        HfModel {
            types: &["BitNetForCausalLM", "BitnetForCausalLM"],
            ..HfModel::DEFAULT
        },
    ],
    // llama.cpp's name of models with SiLU.
    variant: |traits| (traits.activation == Some("silu")).then_some(BITNET.name),
    ..BITNET_25
};

pub(super) const BITNET_25: Arch = Arch {
    name: "bitnet-25",
    activation: Activation::Relu2,
    ..BITNET
};

pub(super) const BITNET: Arch = Arch {
    name: "bitnet",
    names: &Names {
        layer: &[
            names::PRE_NORMS,
            names::ATTENTION,
            names::FEED_FORWARD,
            &[
                ("self_attn.attn_sub_norm", "attn_sub_norm"),
                ("self_attn.inner_attn_ln", "attn_sub_norm"),
                ("mlp.ffn_sub_norm", "ffn_sub_norm"),
                ("mlp.ffn_layernorm", "ffn_sub_norm"),
            ],
        ],
        ..names::LLAMA
    },
    recipe: |b, c| stack::decoder(b, c, block),
    ternary: true,
    ..DEFAULT
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    let a = l.rms_norm(b, c, "attn_sub_norm", a);
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
    let n = l.rms_norm(b, c, "ffn_norm", h); // [tokens, dim]
    let f = l.gated(b, c, n); // [tokens, ffn]
    let f = l.rms_norm(b, c, "ffn_sub_norm", f);
    l.project_add(b, c, "ffn_down", f, h);
}
