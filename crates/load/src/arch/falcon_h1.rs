//! Falcon-H1: attention and a state-space model side by side in every layer.

use super::family::{Arch, DEFAULT, HfModel};
use super::layer_config::MixerRule;
use super::names::{self, Names};
use super::parts::Layer;
use super::recurrent_config::RecurrentKind;
use super::{Config, mamba2, stack};
use crate::plan::builder::{Builder, X};

pub(super) const ARCH: Arch = Arch {
    name: "falcon-h1",
    hf: &[HfModel {
        types: &["falcon_h1"],
        json: r#"{"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "num_key_value_heads": 8,
            "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256,
            "mamba_d_conv": 4, "mamba_norm_before_gate": true, "attention_in_multiplier": 1.0,
            "tie_word_embeddings": false}"#,
        ..HfModel::DEFAULT
    }],
    names: &Names {
        outer: &[
            ("embed_tokens", "token_embd"),
            ("final_layernorm", "output_norm"),
            ("lm_head", names::HEAD),
        ],
        layer: &[
            names::ATTENTION,
            mamba2::NAMES,
            &[
                ("input_layernorm", "attn_norm"),
                ("pre_ff_layernorm", "ffn_norm"),
                ("feed_forward.gate_proj", "ffn_gate"),
                ("feed_forward.up_proj", "ffn_up"),
                ("feed_forward.down_proj", "ffn_down"),
            ],
        ],
        ..names::LLAMA
    },
    recurrent: Some(RecurrentKind::Ssm),
    mixers: MixerRule::Both,
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let y = mamba2::mixer(b, c, l, n); // [tokens, inner]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    l.project_add(b, c, "ssm_out", y, h);
    l.project_add(b, c, "attn_output", a, h);
    l.feed_forward(b, c, h);
}
