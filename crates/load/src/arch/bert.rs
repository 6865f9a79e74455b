//! Encoders: BERT and RoBERTa, Nomic BERT (with RoPE), ModernBERT. Attention is bidirectional, and
//! the rows of a batch are concatenated whole texts.
//!
//! A classification head is computed for every row, which costs less than one hundredth of the layers.
//! The logits of a text are in its first row.

use super::family::{Arch, ConfigRule, DEFAULT, GATE_UP, HfModel, QKV};
use super::layer_config::SlidingPattern;
use super::names::{self, Names};
use super::parts::{self, Layer};
use super::{CLASSIFIER, CLASSIFIER_DENSE, Config};
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, X};

pub(super) const BERT: Arch = Arch {
    name: "bert",
    hf: &[
        HfModel {
            types: &["bert"],
            json: r#"{"max_position_embeddings": 512, "layer_norm_eps": 1e-12,
                "hidden_act": "gelu", "is_causal": false}"#,
            ..HfModel::DEFAULT
        },
        HfModel {
            types: &["xlm-roberta", "roberta"],
            json: r#"{"max_position_embeddings": 512, "layer_norm_eps": 1e-12,
                "hidden_act": "gelu", "is_causal": false, "pad_token_id": 1}"#,
            rule: Some(ConfigRule::PositionsAfterPadding),
            ..HfModel::DEFAULT
        },
    ],
    names: &NAMES,
    encoder: true,
    activation: Activation::Gelu,
    defaults,
    recipe,
    ..DEFAULT
};

pub(super) const NOMIC_BERT: Arch = Arch {
    name: "nomic-bert",
    hf: &[HfModel {
        types: &["nomic_bert"],
        json: r#"{"max_position_embeddings": 2048, "layer_norm_eps": 1e-12,
            "hidden_act": "silu", "rope_theta": 1000.0, "is_causal": false}"#,
        ..HfModel::DEFAULT
    }],
    names: &NOMIC_NAMES,
    fused: &[QKV],
    encoder: true,
    recipe: nomic,
    ..DEFAULT
};

pub(super) const MODERN_BERT: Arch = Arch {
    name: "modern-bert",
    hf: &[HfModel {
        types: &["modernbert"],
        json: r#"{"max_position_embeddings": 8192, "norm_eps": 1e-5,
            "hidden_activation": "gelu", "local_attention": 128, "global_attn_every_n_layers": 3,
            "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "is_causal": false,
            "classifier_pooling": "cls"}"#,
        ..HfModel::DEFAULT
    }],
    names: &MODERN_NAMES,
    fused: &[QKV, GATE_UP],
    encoder: true,
    activation: Activation::Gelu,
    defaults: defaults_modern,
    recipe: modern,
    ..DEFAULT
};

const NAMES: Names = Names {
    prefix: "",
    layers: "encoder.layer.",
    outer: &[
        ("embeddings.word_embeddings", "token_embd"),
        ("embeddings.position_embeddings", "position_embd"),
        ("embeddings.token_type_embeddings", "token_types"),
        ("embeddings.LayerNorm", "token_embd_norm"),
        ("bert.pooler.dense", CLASSIFIER_DENSE),
        ("classifier", CLASSIFIER),
        ("classifier.dense", CLASSIFIER_DENSE),
        ("classifier.out_proj", CLASSIFIER),
    ],
    layer: &[&[
        ("attention.self.query", "attn_q"),
        ("attention.self.key", "attn_k"),
        ("attention.self.value", "attn_v"),
        ("attention.output.dense", "attn_output"),
        ("attention.output.LayerNorm", "attn_output_norm"),
        ("intermediate.dense", "ffn_up"),
        ("output.dense", "ffn_down"),
        ("output.LayerNorm", "layer_output_norm"),
    ]],
    ignored: BERT_HEADS,
    classifier_only: POOLER,
    ..names::LLAMA
};

const NOMIC_NAMES: Names = Names {
    prefix: "",
    layers: "encoder.layers.",
    outer: &[
        ("embeddings.word_embeddings", "token_embd"),
        ("embeddings.token_type_embeddings", "token_types"),
        ("emb_ln", "token_embd_norm"),
    ],
    layer: &[&[
        ("attn.Wqkv", "attn_qkv"),
        ("attn.out_proj", "attn_output"),
        ("norm1", "attn_output_norm"),
        ("mlp.fc11", "ffn_up"),
        ("mlp.fc12", "ffn_gate"),
        ("mlp.fc2", "ffn_down"),
        ("norm2", "layer_output_norm"),
    ]],
    ignored: BERT_HEADS,
    classifier_only: POOLER,
    ..names::LLAMA
};

const MODERN_NAMES: Names = Names {
    prefix: "",
    layers: "layers.",
    outer: &[
        ("embeddings.tok_embeddings", "token_embd"),
        ("embeddings.norm", "token_embd_norm"),
        ("final_norm", "output_norm"),
        ("head.dense", CLASSIFIER_DENSE),
        ("head.norm", "cls.norm"),
        ("classifier", CLASSIFIER),
    ],
    layer: &[&[
        ("attn_norm", "attn_norm"),
        ("attn.Wqkv", "attn_qkv"),
        ("attn.Wo", "attn_output"),
        ("mlp_norm", "ffn_norm"),
        ("mlp.Wi", "ffn_gate_up"),
        ("mlp.Wo", "ffn_down"),
    ]],
    ignored: &["decoder."],
    classifier_only: &["head."],
    ..names::LLAMA
};

/// Heads for masked tokens and next sentences, and position ids.
const BERT_HEADS: &[&str] = &["cls.", "lm_head.", "embeddings.position_ids"];
/// Input of the classification heads of BERT.
const POOLER: &[&str] = &["pooler."];

/// BERT: learned positions, post-norm.
fn recipe(b: &mut Builder<'_>, c: &Config) {
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
fn nomic(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    add_type(b, c, h);
    let h = post_norm_layers(b, c, h, |b, c, l, h| l.gated(b, c, h));
    parts::embeddings(b, c, h);
}

/// ModernBERT: pre-norm, sliding windows in most layers.
fn modern(b: &mut Builder<'_>, c: &Config) {
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
    let means = c.output.classifier_mean;
    let x = if means { mean(b, c, n) } else { n }; // [tokens, dim]
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
    let heads = c.attention.heads;
    b.self_attention(
        [heads, heads, x.cols() / heads],
        [x; 3],
        EQUAL_WEIGHTS,
        u32::MAX,
    )
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
fn defaults(c: &mut Config) {
    c.biased = true;
    c.default_rope_layers(|_| false);
}

/// Defaults of ModernBERT.
fn defaults_modern(c: &mut Config) {
    c.default_sliding_pattern(SlidingPattern::Periodic {
        period: 3,
        full_first: true,
    });
    c.default_window_theta(10_000.0);
}
