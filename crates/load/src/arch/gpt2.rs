//! GPT-2: learned positions, layer norms, biases everywhere, no gate.

use super::family::{Arch, DEFAULT, HfModel, QKV};
use super::names::{self, Names};
use super::parts::{self, Layer};
use super::{Config, stack};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, X};

pub(super) const ARCH: Arch = Arch {
    name: "gpt2",
    hf: &[HfModel {
        types: &["gpt2"],
        json: r#"{"n_positions": 1024, "layer_norm_epsilon": 1e-5,
            "activation_function": "gelu_new"}"#,
        ..HfModel::DEFAULT
    }],
    names: &Names {
        prefix: "transformer.",
        layers: "h.",
        outer: &[
            ("wte", "token_embd"),
            ("wpe", "position_embd"),
            ("ln_f", "output_norm"),
            ("lm_head", names::HEAD),
        ],
        layer: &[&[
            ("ln_1", "attn_norm"),
            ("attn.c_attn", "attn_qkv"),
            ("attn.c_proj", "attn_output"),
            ("ln_2", "ffn_norm"),
            ("mlp.c_fc", "ffn_up"),
            ("mlp.c_proj", "ffn_down"),
        ]],
        // Attention masks.
        ignored: &[".attn.bias", ".attn.masked_bias"],
        ..names::LLAMA
    },
    fused: &[QKV],
    transposed: &["attn_qkv", "attn_output", "ffn_up", "ffn_down"],
    activation: Activation::GeluTanh,
    defaults,
    recipe,
    ..DEFAULT
};

fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    let positions = b.weight("position_embd.weight", c.context, c.dim);
    b.embed_add(positions, h, 1, 0);
    layers(b, c, h);
}

/// Emits the layers and the output projection.
pub(super) fn layers(b: &mut Builder<'_>, c: &Config, h: X) {
    stack::layers(b, c, block, h);
    parts::layer_norm_head(b, c, h);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.layer_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    l.project_add(b, c, "attn_output", a, h); // h += Wo a
    let n = l.layer_norm(b, c, "ffn_norm", h);
    let f = l.project(b, c, "ffn_up", l.config.ffn, n); // [tokens, ffn]
    l.activate(b, c, f);
    l.project_add(b, c, "ffn_down", f, h);
}

/// No RoPE: positions are learned.
fn defaults(c: &mut Config) {
    c.biased = true;
    c.default_rope_layers(|_| false);
}
