//! The layer with the gated delta rule.
//!
//! Formula: S. Yang et al., "Gated Delta Networks", 2024; `transformers`, class `Qwen3NextGatedDeltaNet`.

use super::Config;
use super::names::Pairs;
use super::parts::Layer;
use super::recurrent_config::{DeltaNet, Recurrent};
use crate::plan::builder::{Builder, Conv, X};

/// Modules of layers with the gated delta rule. Names with a suffix are parameters without a module.
pub(super) const NAMES: Pairs = &[
    ("linear_attn.in_proj_qkv", "attn_qkv"),
    ("linear_attn.in_proj_qkvz", "ssm_in"),
    ("linear_attn.in_proj_ba", "ssm_ba"),
    ("linear_attn.in_proj_z", "attn_gate"),
    ("linear_attn.in_proj_a", "ssm_alpha"),
    ("linear_attn.in_proj_b", "ssm_beta"),
    ("linear_attn.conv1d", "ssm_conv1d"),
    ("linear_attn.A_log", "ssm_a"),
    ("linear_attn.dt_bias", "ssm_dt.bias"),
    ("linear_attn.norm", "ssm_norm"),
    ("linear_attn.out_proj", "ssm_out"),
];

/// `h += Wo norm(delta_net(conv(Wqkv norm h))) * silu(Wz norm h)`.
pub(super) fn delta_net(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let Some(Recurrent::DeltaNet(DeltaNet { taps, at })) = c.recurrent else {
        unreachable!("layers are recurrent only with delta heads");
    };
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.project(b, c, "attn_qkv", at.channels(), n); // [q | k | v]
    let z = l.project(b, c, "attn_gate", at.heads * at.value_dim, n);
    let alpha = l.project(b, c, "ssm_alpha", at.heads, n);
    let beta = l.project(b, c, "ssm_beta", at.heads, n);
    let rate = b.vector(&l.tensor("ssm_a"), at.heads); // -e^A_log
    let bias = b.vector(&l.tensor("ssm_dt.bias"), at.heads);
    let gates = b.delta_gates([alpha, beta], rate, bias); // [tokens, 2 heads]
    let w = l.vector(b, "ssm_conv1d", taps * at.channels()); // [taps, channels]
    let conv = Conv {
        taps,
        w,
        bias: None,
        silu: true,
    };
    let qkv = b.conv_tail(l.index, conv, qkv);
    let o = b.delta_net(l.index, at, qkv, gates); // [tokens, heads value_dim]
    let w = l.vector(b, "ssm_norm", at.value_dim);
    let y = b.rms_gate(o, w, z, c.eps);
    b.point(&l.tensor("attn"), y);
    l.project_add(b, c, "ssm_out", y, h);
}
