//! Encoders: BERT and RoBERTa, Nomic BERT (with RoPE), ModernBERT. Attention is bidirectional, and
//! the rows of a batch are concatenated whole texts.
//!
//! A classification head is computed for every row, which costs less than one hundredth of the layers.
//! The logits of a text are in its first row.

use super::layer_config::SlidingPattern;
use super::parts::{self, Layer};
use super::{CLASSIFIER, CLASSIFIER_DENSE, Config};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, X};

/// BERT: learned positions, post-norm.
pub(super) fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    add_type(b, c, h);
    let positions = b.weight("position_embd.weight", c.context, c.dim);
    b.embed_add(positions, h, 1, 0);
    let h = post_norm_layers(b, c, h, |b, c, l, h| {
        let f = l.project(b, c, "ffn_up", l.config.ffn, h); // [tokens, ffn]
        l.activate(b, c, f);
        f
    });
    if !is_classifier(b) {
        return parts::embeddings(b, c, h);
    }
    let d = biased(b, CLASSIFIER_DENSE, c.dim, h); // [tokens, dim]
    b.soft_cap(d, 1.0); // tanh
    labels(b, d);
}

/// Nomic BERT: RoPE and a gated feed-forward layer.
pub(super) fn nomic(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    add_type(b, c, h);
    let h = post_norm_layers(b, c, h, |b, c, l, h| l.gated(b, c, h));
    parts::embeddings(b, c, h);
}

/// ModernBERT: pre-norm, sliding windows in most layers.
pub(super) fn modern(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    let h = norm(b, c, "token_embd_norm", h);
    b.point(parts::EMBEDDING, h);
    for l in parts::layers(c) {
        // The first layer uses the norm of the embeddings.
        let n = match l.index {
            0 => h,
            _ => norm(b, c, &l.tensor("attn_norm"), h),
        };
        let qkv = l.qkv(b, c, n);
        let a = l.attend_both_ways(b, c, qkv); // [tokens, heads head_dim]
        l.project_add(b, c, "attn_output", a, h); // h += Wo a
        let n = norm(b, c, &l.tensor("ffn_norm"), h);
        let f = l.gated(b, c, n); // [tokens, ffn]
        l.project_add(b, c, "ffn_down", f, h);
        b.end_of_layer(h);
    }
    let n = norm(b, c, "output_norm", h);
    if !is_classifier(b) {
        return parts::embeddings(b, c, n);
    }
    let x = if c.classifier_mean { mean(b, c, n) } else { n }; // [tokens, dim]
    let d = parts::linear(b, CLASSIFIER_DENSE, c.dim, x);
    b.activate(Activation::Gelu, d);
    let w = b.vector(&format!("{CLASSIFIER_DENSE}.norm.weight"), c.dim);
    let n = b.layer_norm(d, w, c.eps);
    labels(b, n);
}

/// Returns whether the model has a classification head.
fn is_classifier(b: &Builder<'_>) -> bool {
    b.has(&format!("{CLASSIFIER}.weight"))
}

/// Ends the table with the logits of the labels, `[tokens, labels]`.
fn labels(b: &mut Builder<'_>, x: X) {
    let count = b.rows_of(&format!("{CLASSIFIER}.weight"));
    let logits = biased(b, CLASSIFIER, count, x);
    b.output(logits);
}

/// `W x + bias`, `[tokens, rows]`, of a matrix of the head.
fn biased(b: &mut Builder<'_>, name: &str, rows: u32, x: X) -> X {
    let w = b.weight(&format!("{name}.weight"), rows, x.cols());
    let y = b.mat(name, w, x);
    let bias = b.vector(&format!("{name}.bias"), rows);
    b.add_bias(bias, y);
    y
}

/// Mean of the rows of each text, in all of its rows: attention whose scores are so close to 0 that all
/// weights are equal.
fn mean(b: &mut Builder<'_>, c: &Config, x: X) -> X {
    let heads = [c.heads, c.heads, x.cols() / c.heads];
    b.self_attention(heads, [x; 3], EQUAL_WEIGHTS, u32::MAX)
}

/// Scale of attention with equal weights. Not 0, whose product with the score of an invisible row is NaN.
const EQUAL_WEIGHTS: f32 = 1e-30;

/// Layer norm `name` without a bias.
fn norm(b: &mut Builder<'_>, c: &Config, name: &str, x: X) -> X {
    let w = b.vector(&format!("{name}.weight"), x.cols());
    let y = b.layer_norm(x, w, c.eps);
    b.point(name, y);
    y
}

/// Norm of the embeddings, then post-norm layers; `[tokens, dim]`.
fn post_norm_layers(
    b: &mut Builder<'_>,
    c: &Config,
    h: X,
    feed_forward: fn(&mut Builder<'_>, &Config, Layer, X) -> X,
) -> X {
    let mut h = parts::layer_norm(b, c, "token_embd_norm", h);
    b.point(parts::EMBEDDING, h);
    for l in parts::layers(c) {
        let qkv = l.qkv(b, c, h);
        let a = l.attend_both_ways(b, c, qkv); // [tokens, heads head_dim]
        l.project_add(b, c, "attn_output", a, h); // h += Wo a
        h = l.layer_norm(b, c, "attn_output_norm", h);
        let f = feed_forward(b, c, l, h); // [tokens, ffn]
        l.project_add(b, c, "ffn_down", f, h);
        h = l.layer_norm(b, c, "layer_output_norm", h);
        b.end_of_layer(h);
    }
    h
}

/// Adds the embedding of the token type. Some tokenizers distinguish the texts of a pair although the
/// model has one type.
fn add_type(b: &mut Builder<'_>, c: &Config, h: X) {
    let count = b.rows_of("token_types.weight").max(1);
    let types = b.weight("token_types.weight", count, c.dim);
    match count {
        1 => b.embed_add(types, h, 0, 0),
        _ => b.embed_add_type(types, h),
    }
}

/// No RoPE: positions are learned.
pub(super) fn defaults(c: &mut Config) {
    c.biased = true;
    c.default_rope_layers(|_| false);
}

/// Defaults of ModernBERT.
pub(super) fn defaults_modern(c: &mut Config) {
    c.default_sliding_pattern(SlidingPattern::Periodic {
        period: 3,
        full_first: true,
    });
    c.default_window_theta(10_000.0);
}
