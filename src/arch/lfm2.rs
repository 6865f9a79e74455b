//! LFM2: layers with a gated short convolution, or with attention; feed-forward layers or mixtures of experts.
//!
//! Formula: `transformers`, class `Lfm2ShortConv`.

use super::parts::Layer;
use super::recurrent_config::{Recurrent, ShortConv};
use super::stack;
use super::{Config, experts};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, Conv, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    stack::decoder(b, c, block);
}

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
