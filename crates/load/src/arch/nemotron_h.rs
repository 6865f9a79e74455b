//! Nemotron-H and Nemotron 3: one mixer per layer, which is a state-space model, attention without RoPE, a
//! feed-forward layer without gate, or a mixture of such experts.

use super::family::{Arch, DEFAULT, HfModel, SIGMOID};
use super::layer_config::MixerRule;
use super::names::{self, Names};
use super::parts::Layer;
use super::recurrent_config::RecurrentKind;
use super::{Config, experts, mamba2, stack};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, X};

/// Its GGUF files have another name if a layer has experts.
pub(super) const NEMOTRON_H: Arch = Arch {
    name: "nemotron_h",
    hf: &[HfModel {
        types: &["nemotron_h"],
        json: r#"{"vocab_size": 131072, "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 4096,
            "intermediate_size": 21504, "mlp_hidden_act": "relu2", "ssm_state_size": 128,
            "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4,
            "n_routed_experts": 8, "n_shared_experts": 1, "moe_intermediate_size": 7688,
            "moe_shared_expert_intermediate_size": 7688, "num_experts_per_tok": 2,
            "routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
            "layer_norm_epsilon": 1e-5, "tie_word_embeddings": false}"#,
        ..HfModel::DEFAULT
    }],
    variant: |traits| (traits.experts > 0).then_some(NEMOTRON_H_MOE.name),
    ..NEMOTRON_H_MOE
};

pub(super) const NEMOTRON_H_MOE: Arch = Arch {
    name: "nemotron_h_moe",
    names: &NAMES,
    recurrent: Some(RecurrentKind::Ssm),
    mixers: MixerRule::One,
    activation: Activation::Relu2,
    router: SIGMOID,
    defaults,
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
};

const NAMES: Names = Names {
    prefix: "backbone.",
    outer: &[
        ("embeddings", "token_embd"),
        ("norm_f", "output_norm"),
        ("lm_head", names::HEAD),
    ],
    layer: &[&[
        ("norm", "attn_norm"),
        ("mixer.in_proj", "ssm_in"),
        ("mixer.conv1d", "ssm_conv1d"),
        ("mixer.A_log", "ssm_a"),
        ("mixer.D", "ssm_d"),
        ("mixer.dt_bias", "ssm_dt.bias"),
        ("mixer.norm", "ssm_norm"),
        ("mixer.out_proj", "ssm_out"),
        ("mixer.q_proj", "attn_q"),
        ("mixer.k_proj", "attn_k"),
        ("mixer.v_proj", "attn_v"),
        ("mixer.o_proj", "attn_output"),
        ("mixer.up_proj", "ffn_up"),
        ("mixer.down_proj", "ffn_down"),
        ("mixer.gate", "ffn_gate_inp"),
        ("mixer.gate.e_score_correction_bias", "exp_probs_b.bias"),
        ("mixer.experts.up_proj", "ffn_up_exps"),
        ("mixer.experts.down_proj", "ffn_down_exps"),
        ("mixer.switch_mlp.fc1", "ffn_up_exps"),
        ("mixer.switch_mlp.fc2", "ffn_down_exps"),
        ("mixer.shared_experts.up_proj", "ffn_up_shexp"),
        ("mixer.shared_experts.down_proj", "ffn_down_shexp"),
        ("mixer.fc1_latent_proj", "ffn_latent_down"),
        ("mixer.fc2_latent_proj", "ffn_latent_up"),
    ]],
    // Layers that predict later tokens.
    ignored: &["mtp."],
    ..names::LLAMA
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let mixer = l.config.mixer;
    if mixer.has_state() {
        let y = mamba2::mixer(b, c, l, n);
        l.project_add(b, c, "ssm_out", y, h);
    } else if mixer.has_attention() {
        let qkv = l.qkv(b, c, n);
        let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
        l.project_add(b, c, "attn_output", a, h);
    } else if l.config.experts > 0 {
        experts::mixture(b, c, l, [n, h]);
    } else {
        let f = l.project(b, c, "ffn_up", l.config.ffn, n); // [tokens, ffn]
        l.activate(b, c, f);
        l.project_add(b, c, "ffn_down", f, h);
    }
}

/// No layer has RoPE, in spite of the keys in files, and no feed-forward layer a gate.
fn defaults(c: &mut Config) {
    c.ffn.ungated = true;
    c.default_rope_layers(|_| false);
}
