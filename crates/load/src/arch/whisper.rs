//! Whisper: an encoder of log-mel spectrograms, and a decoder that attends to its output.

use super::Config;
use super::family::{Arch, DEFAULT, HfModel};
use super::layer_config::{LayerConfig, LayerValues, Mixer};
use super::parts::{self, Layer};
use super::speech_encoder::SpeechEncoder;
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, Heads, X};

pub(super) const ARCH: Arch = Arch {
    name: "whisper",
    hf: &[HfModel {
        types: &["whisper"],
        class: Some("WhisperForConditionalGeneration"),
        ..HfModel::DEFAULT
    }],
    activation: Activation::Gelu,
    defaults,
    recipe,
    ..DEFAULT
};

/// Prefix of the tensors of the encoder.
const ENCODER: &str = "enc.";

/// Returns the layers of the encoder.
fn encoder_layers(encoder: &SpeechEncoder, dim: u32) -> impl Iterator<Item = Layer> + use<> {
    let config = LayerConfig {
        heads: encoder.heads,
        kv_heads: encoder.heads,
        head_dim: dim / encoder.heads,
        ffn: encoder.ffn,
        experts: 0,
        window: 0,
        rope: None,
        cache: 0,
        mixer: Mixer::Attention,
        latent: false,
        skip: 0,
    };
    (0..encoder.layers).map(move |index| Layer {
        prefix: ENCODER,
        index,
        config,
    })
}

/// Values that files do not contain.
fn defaults(c: &mut Config) {
    c.eps = 1e-5;
    if c.ffn.width == 0 {
        c.ffn.width = c.dim.saturating_mul(4);
        c.per_layer.ffn = LayerValues::All(c.ffn.width);
    }
    c.default_rope_layers(|_| false);
}

/// Returns the layers that store the cross-attention of the decoder layers, after all of these.
/// Their KV cache holds the positions of a window.
pub(super) fn cross_layers(c: &Config) -> Vec<LayerConfig> {
    let Some(encoder) = &c.speech else {
        return Vec::new();
    };
    let layers = (c.layers..).zip(&c.layer_configs);
    let cross = layers.map(|(cache, layer)| LayerConfig {
        window: encoder.context,
        cache,
        ..*layer
    });
    cross.collect()
}

/// Encoder: from the spectrogram to the keys and values of cross-attention, for one window.
pub(crate) fn encoder(b: &mut Builder<'_>, c: &Config) {
    let Some(encoder) = &c.speech else {
        return;
    };
    let mel = b.mel(encoder.mels); // [2 context, mels]
    let x = convolution(b, c, "conv1", mel, 1); // [2 context, dim]
    let h = convolution(b, c, "conv2", x, 2); // [context, dim]
    let positions = b.weight("enc.position_embd.weight", encoder.context, c.dim);
    b.embed_add(positions, h, 1, 0);
    for l in encoder_layers(encoder, c.dim) {
        let n = l.layer_norm(b, c, "attn_norm", h);
        let qkv = l.qkv(b, c, n);
        let Heads {
            heads, head_dim, ..
        } = l.heads();
        let scale = l.attention_scale(c);
        let a = b.self_attention([heads, heads, head_dim], qkv, scale, u32::MAX);
        l.project_add(b, c, "attn_output", a, h); // h += Wo a
        feed_forward(b, c, l, h);
        b.end_of_layer(h);
    }
    let n = parts::layer_norm(b, c, "enc.output_norm", h);
    b.output(n);
    for l in parts::layers(c).take(c.layers as usize) {
        let kv_dim = l.config.kv_dim();
        let k = l.project(b, c, "cross_attn_k", kv_dim, n);
        let v = l.project(b, c, "cross_attn_v", kv_dim, n);
        b.store_kv(cross_heads(c, l), k, v, n);
    }
}

/// Decoder: from tokens to logits.
fn recipe(b: &mut Builder<'_>, c: &Config) {
    decoder(b, c, |_, _, _| {});
}

/// Decoder that also stores the scores of the heads whose cross-attention aligns tokens with audio.
pub(crate) fn aligner(b: &mut Builder<'_>, c: &Config) {
    let Some(encoder) = &c.speech else {
        return;
    };
    let count = u32::try_from(encoder.alignment_heads.len()).unwrap_or(u32::MAX);
    decoder(b, c, |b, l, q| {
        for (index, (layer, head)) in (0..).zip(&encoder.alignment_heads) {
            if *layer == l.index {
                let (at, scale) = (cross_heads(c, l), l.attention_scale(c));
                b.attention_scores(at, q, *head, scale, encoder.context, [index, count]);
            }
        }
    });
}

/// Decoder; `align` receives the queries of the cross-attention of every layer.
fn decoder(b: &mut Builder<'_>, c: &Config, align: impl Fn(&mut Builder<'_>, Layer, X)) {
    let positions = c.speech.as_ref().map_or(0, |encoder| encoder.context);
    let h = parts::embed(b, c); // [tokens, dim]
    let w = b.weight("position_embd.weight", c.context, c.dim);
    b.embed_add(w, h, 1, 0);
    for l in parts::layers(c).take(c.layers as usize) {
        let n = l.layer_norm(b, c, "attn_norm", h);
        let qkv = l.qkv(b, c, n);
        let a = l.attend(b, c, qkv);
        l.project_add(b, c, "attn_output", a, h); // h += Wo a
        let n = l.layer_norm(b, c, "cross_attn_norm", h);
        let q = l.project(b, c, "cross_attn_q", l.config.q_dim(), n);
        align(b, l, q);
        let a = b.cross_attention(cross_heads(c, l), q, l.attention_scale(c), positions);
        l.project_add(b, c, "cross_attn_output", a, h); // h += Wo a
        feed_forward(b, c, l, h);
        b.end_of_layer(h);
    }
    let rows = b.logit_rows(h);
    let n = parts::layer_norm(b, c, "output_norm", rows);
    parts::logits(b, c, n);
}

/// Convolution of width 3 with padding 1, and GELU.
fn convolution(b: &mut Builder<'_>, c: &Config, name: &str, x: X, stride: u32) -> X {
    let unfolded = b.unfold(x, stride); // [tokens / stride, 3 channels]
    let w = b.weight(&format!("{ENCODER}{name}.weight"), c.dim, unfolded.cols());
    let y = b.mat(name, w, unfolded);
    let bias = b.vector(&format!("{ENCODER}{name}.bias"), c.dim);
    b.add_bias(bias, y);
    b.activate(c.ffn.activation, y);
    y
}

/// `h += down(act(up(norm h)))`.
fn feed_forward(b: &mut Builder<'_>, c: &Config, l: Layer, h: X) {
    let n = l.layer_norm(b, c, "ffn_norm", h);
    let f = l.project(b, c, "ffn_up", l.config.ffn, n); // [tokens, ffn]
    b.activate(c.ffn.activation, f);
    l.project_add(b, c, "ffn_down", f, h);
}

/// Returns the heads of the cross-attention of a decoder layer.
fn cross_heads(c: &Config, l: Layer) -> Heads {
    let config = c.layer_configs[(c.layers + l.index) as usize];
    Layer { config, ..l }.heads()
}
