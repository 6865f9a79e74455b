//! StarCoder 2: GPT-2's block with RoPE and grouped-query attention.

use super::family::{Arch, DEFAULT, HfModel};
use super::names::{self, Names};
use super::{Config, gpt2, parts};
use crate::op::functions::Activation;
use crate::plan::builder::Builder;

pub(super) const ARCH: Arch = Arch {
    name: "starcoder2",
    hf: &[HfModel {
        types: &["starcoder2"],
        json: r#"{"max_position_embeddings": 4096, "norm_epsilon": 1e-5,
            "num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh"}"#,
        ..HfModel::DEFAULT
    }],
    names: &Names {
        layer: &[
            names::PRE_NORMS,
            names::ATTENTION,
            &[("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down")],
        ],
        ..names::LLAMA
    },
    activation: Activation::GeluTanh,
    recipe,
    ..DEFAULT
};

fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    gpt2::layers(b, c, h);
}
