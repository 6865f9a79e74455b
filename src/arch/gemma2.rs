//! Gemma 2 and 3: norms on both sides of attention and feed-forward layer, windows on most
//! layers. Gemma 2 caps scores and logits; Gemma 3 norms the heads of Q and K.

use super::Config;
use super::block::Slides;
use super::parts::{self, Layer};
use crate::op::builder::{Builder, X};

pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    parts::decoder(b, c, block);
}

pub(super) fn recipe3(b: &mut Builder<'_>, c: &Config) {
    parts::decoder(b, c, block3);
}

fn block(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let qkv = l.qkv(b, c, n);
    let a = l.attend(b, c, qkv); // [tokens, heads head_dim]
    after_attention(b, c, l, a, h);
    feed_forward(b, c, l, h);
}

fn block3(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "attn_norm", h); // [tokens, dim]
    let [q, k, v] = l.qkv(b, c, n);
    let q = l.head_norm(b, c, "attn_q_norm", q); // each head apart
    let k = l.head_norm(b, c, "attn_k_norm", k);
    let a = l.attend(b, c, [q, k, v]); // [tokens, heads head_dim]
    after_attention(b, c, l, a, h);
    feed_forward(b, c, l, h);
}

/// `h += norm(Wo a)`.
pub(super) fn after_attention(b: &mut Builder<'_>, c: &Config, l: Layer, a: X, h: X) {
    let o = l.project(b, c, "attn_output", c.dim, a); // [tokens, dim]
    let o = l.rms_norm(b, c, "post_attention_norm", o);
    b.add(o, h, 1.0);
}

/// `h += norm(down(act(gate n) * up n))`.
pub(super) fn feed_forward(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.rms_norm(b, c, "ffn_norm", h); // [tokens, dim]
    let f = l.gated(b, c, n); // [tokens, ffn]
    let o = l.project(b, c, "ffn_down", c.dim, f);
    let o = l.rms_norm(b, c, "post_ffw_norm", o);
    b.add(o, h, 1.0);
}

/// What Gemma 2's files leave unsaid.
pub(super) fn defaults(c: &mut Config) {
    c.scale_embeddings();
    c.gelu_by_tanh();
    if c.window == 0 {
        c.window = 4096;
    }
    c.slide_unless_said(Slides::But {
        one_of: 2,
        first: false,
    });
    // The one size whose scores are not scaled by their head.
    c.scale_attention_of(46);
}

/// What Gemma 3's files leave unsaid.
pub(super) fn defaults3(c: &mut Config) {
    c.scale_embeddings();
    c.gelu_by_tanh();
    c.slide_unless_said(Slides::But {
        one_of: 6,
        first: false,
    });
    c.rotate_windows_by(10_000.0);
    c.scale_attention_of(62);
}
