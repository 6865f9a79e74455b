//! LFM2: layers with a gated short convolution, or with attention; feed-forward layers or mixtures of experts.
//!
//! Formula: `transformers`, class `Lfm2ShortConv`.

use super::family::{Arch, ConfigRule, DEFAULT, HfModel, SIGMOID};
use super::layer_config::MixerRule;
use super::names::{self, Names};
use super::parts::Layer;
use super::recurrent_config::{Recurrent, RecurrentKind, ShortConv};
use super::{Config, experts, stack};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, Conv, Router, X};

pub(super) const LFM2: Arch = Arch {
    name: "lfm2",
    hf: &[HfModel {
        types: &["lfm2"],
        json: r#"{"vocab_size": 65536, "hidden_size": 2560, "intermediate_size": 12288,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "max_position_embeddings": 128000, "norm_eps": 1e-5, "rope_theta": 1e6,
            "conv_L_cache": 3, "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0,
            "block_auto_adjust_ff_dim": true, "tie_word_embeddings": true}"#,
        rule: Some(ConfigRule::RmsNormEps),
        ..HfModel::DEFAULT
    }],
    names: &NAMES,
    // The norm of the output, in spite of its name.
    aliases: &[("token_embd_norm.weight", "output_norm.weight")],
    recurrent: Some(RecurrentKind::ShortConv),
    mixers: MixerRule::WithoutHeads,
    recipe: |b, c| stack::decoder(b, c, block),
    ..DEFAULT
};

pub(super) const LFM2_MOE: Arch = Arch {
    name: "lfm2moe",
    hf: &[HfModel {
        types: &["lfm2_moe"],
        json: r#"{"vocab_size": 65536, "hidden_size": 2048, "intermediate_size": 7168,
            "moe_intermediate_size": 1792, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 128000, "norm_eps": 1e-5,
            "rope_theta": 1e6, "conv_L_cache": 3, "num_dense_layers": 2, "num_experts_per_tok": 4,
            "num_experts": 32, "norm_topk_prob": true, "routed_scaling_factor": 1.0,
            "scoring_func": "sigmoid", "tie_word_embeddings": true}"#,
        rule: Some(ConfigRule::RmsNormEps),
        ..HfModel::DEFAULT
    }],
    router: Router {
        eps: 1e-6,
        ..SIGMOID
    },
    ..LFM2
};

const NAMES: Names = Names {
    outer: &[
        ("embed_tokens", "token_embd"),
        ("embedding_norm", "token_embd_norm"),
        ("lm_head", names::HEAD),
    ],
    layer: &[&[
        ("operator_norm", "attn_norm"),
        ("ffn_norm", "ffn_norm"),
        ("conv.in_proj", "shortconv.in_proj"),
        ("conv.conv", "shortconv.conv"),
        ("conv.out_proj", "shortconv.out_proj"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.out_proj", "attn_output"),
        ("self_attn.q_layernorm", "attn_q_norm"),
        ("self_attn.k_layernorm", "attn_k_norm"),
        ("feed_forward.w1", "ffn_gate"),
        ("feed_forward.w3", "ffn_up"),
        ("feed_forward.w2", "ffn_down"),
        ("feed_forward.gate_proj", "ffn_gate"),
        ("feed_forward.up_proj", "ffn_up"),
        ("feed_forward.down_proj", "ffn_down"),
        ("feed_forward.gate", "ffn_gate_inp"),
        ("feed_forward.expert_bias", "exp_probs_b.bias"),
        ("feed_forward.experts.w1", "ffn_gate_exps"),
        ("feed_forward.experts.w3", "ffn_up_exps"),
        ("feed_forward.experts.w2", "ffn_down_exps"),
        ("feed_forward.switch_mlp.gate_proj", "ffn_gate_exps"),
        ("feed_forward.switch_mlp.up_proj", "ffn_up_exps"),
        ("feed_forward.switch_mlp.down_proj", "ffn_down_exps"),
    ]],
    ..names::LLAMA
};

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    if l.config.mixer.has_state() {
        let y = short_conv(b, c, l, n);
        l.project_add(b, c, "shortconv.out_proj", y, h);
    } else {
        let [q, k, v] = l.qkv(b, c, n);
        let q = l.head_norm(b, c, "attn_q_norm", q);
        let k = l.head_norm(b, c, "attn_k_norm", k);
        let a = l.attend(b, c, [q, k, v]); // [tokens, heads head_dim]
        l.project_add(b, c, "attn_output", a, h);
    }
    experts::feed_forward(b, c, l, h);
}

/// `C * conv(B * x)` for `[B | C | x] = Win n`, `[tokens, dim]`.
fn short_conv(b: &mut Builder<'_>, c: &Config, l: Layer, n: X) -> X {
    let Some(Recurrent::ShortConv(ShortConv { taps, channels })) = c.recurrent else {
        unreachable!("layers are recurrent only with a short convolution");
    };
    let all = l.project(b, c, "shortconv.in_proj", 3 * channels, n);
    let [before, after, x] = [0, 1, 2].map(|part| b.columns(all, part * channels, channels));
    let x = b.glu(Activation::Linear, before, x);
    let w = l.vector(b, "shortconv.conv", taps * channels); // [taps, channels]
    let bias = l.optional_vector(b, c, "shortconv.conv.bias", channels);
    let conv = Conv {
        taps,
        w,
        bias,
        silu: false,
    };
    let y = b.conv_tail(l.index, conv, x);
    let y = b.glu(Activation::Linear, after, y);
    b.point(&l.tensor("attn"), y);
    y
}
