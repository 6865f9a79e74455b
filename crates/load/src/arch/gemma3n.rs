//! Gemma 3n, text models: four residual streams, of which attention and the feed-forward layer read the
//! first (`AltUp`), a low-rank branch next to attention (`LAuReL`), per-layer token embeddings, sparse
//! activations in the first layers, and last layers that share the KV cache of earlier ones.

use super::Config;
use super::config::LAYERS_MAX;
use super::family::{Arch, DEFAULT, HfModel};
use super::gemma2::after_attention;
use super::gemma4::{self, attention_input, layer_embedding, layer_embeddings};
use super::layer_config::SlidingPattern;
use super::names::{self, Names};
use super::parts::{self, Layer};
use crate::op::functions::{Activation, STREAMS};
use crate::plan::builder::{Builder, StreamFactor, X};

pub(super) const ARCH: Arch = Arch {
    name: "gemma3n",
    hf: &[HfModel {
        types: &["gemma3n_text", "gemma3n"],
        json: r#"{"vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384,
            "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2,
            "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "sliding_window": 512,
            "sliding_window_pattern": 5, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
            "final_logit_softcapping": 30.0, "vocab_size_per_layer_input": 262144,
            "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 15,
            "altup_num_inputs": 4, "altup_active_idx": 0, "tie_word_embeddings": true}"#,
        ..HfModel::DEFAULT
    }],
    names: &Names {
        outer: gemma4::LAYER_EMBEDDINGS,
        layer: &[
            names::SANDWICH,
            names::ATTENTION,
            names::FEED_FORWARD,
            gemma4::LAYER_EMBEDDING,
            &[
                ("laurel.linear_left", "laurel_l"),
                ("laurel.linear_right", "laurel_r"),
                ("laurel.post_laurel_norm", "laurel_post_norm"),
                ("altup.modality_router", "altup_router"),
                ("altup.router_norm", "altup_router_norm"),
                ("altup.prediction_coefs", "altup_predict_coef"),
                ("altup.correction_coefs", "altup_correct_coef"),
                ("altup.correct_output_scale", "altup_correct_scale"),
            ],
        ],
        ..names::LLAMA
    },
    activation: Activation::GeluTanh,
    defaults,
    recipe,
    ..DEFAULT
};

/// Minimum mean square of a stream when its magnitude is set.
const FLOOR: f32 = 1e-5;

/// A coefficient plus 1, for all streams.
const CORRECTION: StreamFactor = StreamFactor {
    first: 0,
    offset: 1.0,
    gain: 1.0,
};

/// 1, for all streams except the first.
const OTHERS: StreamFactor = StreamFactor {
    first: 1,
    offset: 1.0,
    gain: 0.0,
};

fn recipe(b: &mut Builder<'_>, c: &Config) {
    let h = parts::embed(b, c); // [tokens, dim]
    b.point(parts::EMBEDDING, h);
    let rows = match c.layer_embeddings.rows {
        0 => c.vocab,
        rows => rows,
    };
    let embeddings = layer_embeddings(b, c, rows, h); // [tokens, layers width]
    let [x1, x2, x3] = others(b, c, "altup_proj", h, [h; 3]);
    let streams = [h, x1, x2, x3];
    for l in parts::layers(c) {
        block(b, c, l, embeddings, streams);
        b.end_of_layer(h);
    }
    // The mean of the streams.
    let [y, more @ ..] = others(b, c, "altup_unembd_proj", h, [x1, x2, x3]);
    for x in more.into_iter().chain([h]) {
        b.add(x, y, 1.0);
    }
    b.scale(y, 1.0 / STREAMS as f32);
    parts::head(b, c, y);
}

/// Products of the other streams' matrices `name` and `inputs`, with the magnitude of `h`.
fn others(b: &mut Builder<'_>, c: &Config, name: &str, h: X, inputs: [X; 3]) -> [X; 3] {
    let mut index = 0;
    inputs.map(|x| {
        let w = b.weight(&format!("{name}.{index}.weight"), c.dim, c.dim);
        index += 1;
        let y = b.mat("stream", w, x);
        b.match_rms(h, y, FLOOR);
        y
    })
}

/// One layer on the streams. The first is `h`.
fn block(b: &mut Builder<'_>, c: &Config, l: Layer, embeddings: X, streams: [X; STREAMS as usize]) {
    let [h, ..] = streams;
    // x_j += sum_k C x_k: the predictions.
    let routes = modalities(b, c, l, h); // [tokens, streams]
    let coefficients = l.project(b, c, "altup_predict_coef", STREAMS * STREAMS, routes);
    b.mix_streams(coefficients, streams);
    let x = b.columns(h, 0, c.dim);
    let n = l.rms_norm(b, c, "attn_norm", x); // [tokens, dim]
    let q = attention_input(b, c, l, n);
    let a = l.attention(b, c, q); // [tokens, heads head_dim]
    after_attention(b, c, l, a, x);
    let side = laurel(b, c, l, n);
    b.add(side, x, 1.0);
    b.scale(x, std::f32::consts::FRAC_1_SQRT_2);
    feed_forward(b, c, l, x);
    // x_j += (1 + c_j) (x - h): the corrections.
    let routes = modalities(b, c, l, x);
    let coefficients = l.project(b, c, "altup_correct_coef", STREAMS, routes);
    b.add(h, x, -1.0);
    b.add_to_streams(CORRECTION, [coefficients, x], streams);
    let first = b.columns(h, 0, c.dim);
    let scale = l.vector(b, "altup_correct_scale", c.dim);
    b.mul(scale, first);
    let o = layer_embedding(b, c, l, embeddings, first); // [tokens, dim]
    b.add_to_streams(OTHERS, [coefficients, o], streams);
}

/// `tanh(Wr norm(x) / dim)`, `[tokens, streams]`. Not a point, because a layer computes it twice.
fn modalities(b: &mut Builder<'_>, c: &Config, l: Layer, x: X) -> X {
    let norm = l.vector(b, "altup_router_norm", c.dim);
    let n = b.rms_norm(x, norm, c.eps);
    b.scale(n, 1.0 / c.dim as f32);
    let router = l.mat(b, "altup_router", STREAMS, c.dim);
    let routes = b.mat("router", router, n);
    b.adapters(&l.tensor("altup_router"), n, routes);
    b.soft_cap(routes, 1.0);
    routes
}

/// `n + norm(R L n)`.
fn laurel(b: &mut Builder<'_>, c: &Config, l: Layer, n: X) -> X {
    // All layers have the same rank.
    let rank = b.rows_of("blk.0.laurel_l.weight");
    let low = l.project(b, c, "laurel_l", rank, n); // [tokens, rank]
    let side = l.project(b, c, "laurel_r", c.dim, low); // [tokens, dim]
    let side = l.rms_norm(b, c, "laurel_post_norm", side);
    b.add(n, side, 1.0);
    side
}

/// `x += norm(down(act(gate n) * up n))`, with a sparse gate in some layers.
fn feed_forward(b: &mut Builder<'_>, c: &Config, l: Layer, x: X) {
    let n = l.rms_norm(b, c, "ffn_norm", x); // [tokens, dim]
    let gate = l.project(b, c, "ffn_gate", l.config.ffn, n); // [tokens, ffn]
    let deviations = c.ffn.sparsity.get(l.index as usize).copied();
    if let Some(deviations) = deviations.filter(|d| d.is_finite()) {
        b.gaussian_top_k(gate, deviations);
    }
    let up = l.project(b, c, "ffn_up", l.config.ffn, n);
    let f = b.glu(c.ffn.activation, gate, up);
    b.point(&l.tensor("ffn"), f);
    let o = l.project(b, c, "ffn_down", c.dim, f);
    let o = l.rms_norm(b, c, "post_ffw_norm", o);
    b.add(o, x, 1.0);
}

/// Defaults of Gemma 3n.
fn defaults(c: &mut Config) {
    c.scale_embeddings();
    c.use_gelu_tanh();
    c.attention.scale = 1.0;
    if c.layer_embeddings.width == 0 {
        c.layer_embeddings.width = 256;
    }
    if c.attention.window == 0 {
        c.attention.window = 512;
    }
    if c.output.logit_cap == 0.0 {
        c.output.logit_cap = 30.0;
    }
    c.default_sliding_pattern(SlidingPattern::Periodic {
        period: 5,
        full_first: false,
    });
    c.default_window_theta(10_000.0);
    // 95 % of the activations of the first layers are 0.
    if c.ffn.sparsity.is_empty() && c.layers > 10 {
        // An invalid number of layers is rejected later.
        let layers = 0..c.layers.min(LAYERS_MAX);
        let cutoffs = layers.map(|layer| {
            if layer < 10 {
                1.644_853_6
            } else {
                f32::NEG_INFINITY
            }
        });
        c.ffn.sparsity = cutoffs.collect();
    }
}
