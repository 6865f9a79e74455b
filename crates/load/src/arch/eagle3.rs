//! Drafting head of EAGLE-3: a layer in files of its own, which reads features of three layers of the model and the
//! embedding of the token, and has a vocabulary of frequent tokens.
//!
//! Source: Li et al., "EAGLE-3", arXiv 2503.01840.

use super::config::{Config, Drafting, Eagle3, RopeConfig};
use super::drafting_rows;
use super::family::{Arch, DEFAULT, RopePairs};
use super::layer_config::LayerConfig;
use super::names::{self, Names};
use super::parts::{self, Layer};
use crate::error::{Result, bail};
use crate::format::Metadata;
use crate::plan::builder::{Builder, X};

/// Its files are not a model: the recipe is never run.
pub(super) const ARCH: Arch = Arch {
    name: EAGLE3,
    names: &Names {
        outer: &[
            ("embed_tokens", "token_embd"),
            ("norm", "output_norm"),
            ("lm_head", names::HEAD),
            ("fc", "fc"),
        ],
        layer: &[
            names::PRE_NORMS,
            names::ATTENTION,
            names::FEED_FORWARD,
            &[("hidden_norm", "attn_norm_2")],
        ],
        predictor: Some("midlayer."),
        // The tokens of the head, which are numbers.
        ignored: &["t2d", "d2t"],
        ..names::LLAMA
    },
    rope_pairs: RopePairs::Permuted,
    ..DEFAULT
};

/// Value of `general.architecture`.
pub(crate) const EAGLE3: &str = "eagle3";

/// Prefix of the tensors of the head among those of the model.
pub(crate) const PREFIX: &str = "drafter.";

/// For each token of the model, its number in the vocabulary of the head, or -1, `[vocab]`.
pub(crate) const TOKEN_INDEX: &str = "drafter.t2d.weight";

/// Number of layers of the model whose features the head reads.
const TAPS: usize = 3;

impl Eagle3 {
    /// Returns the head with these hyperparameters, of a model with the hyperparameters `model`. `pairs` are those of RoPE
    /// in its files.
    ///
    /// # Errors
    ///
    /// `Format` for hyperparameters that contradict each other or those of the model, `Unsupported`.
    pub(crate) fn new(
        config: Config,
        model: &Config,
        metadata: &Metadata,
        pairs: RopePairs,
    ) -> Result<Self> {
        let key = |name: &str| format!("{EAGLE3}.{name}");
        let flag = |name: &str| Ok(metadata.bool(&key(name))?.unwrap_or(false));
        if flag("norm_before_fc")? {
            bail!(Unsupported, "unsupported {}: true", key("norm_before_fc"));
        }
        let taps = metadata.u32s(&key("target_layers"))?;
        let taps = taps.unwrap_or_else(|| {
            let layers = model.layers;
            vec![2, layers / 2, layers.saturating_sub(3)]
        });
        if taps.len() != TAPS || !taps.is_sorted_by(|a, b| a < b) || taps[TAPS - 1] > model.layers {
            bail!(
                Unsupported,
                "{}: expected three ascending layers of the model, which has {}, got {taps:?}",
                key("target_layers"),
                model.layers
            );
        }
        let [Some(layer), None] = [config.layer_configs.first(), config.layer_configs.get(1)]
        else {
            bail!(
                Unsupported,
                "{}: expected 1, got {}",
                key("block_count"),
                config.layers
            );
        };
        if layer.window > 0 {
            bail!(
                Unsupported,
                "{}: expected full attention, got a window of {}",
                key("attention.sliding_window"),
                layer.window
            );
        }
        let layer = LayerConfig {
            cache: model.layers,
            rope: layer
                .rope
                .map(|_| u32::try_from(model.rope.rotations.len()).unwrap_or(u32::MAX)),
            // The first position has no previous one.
            skip: 1,
            ..*layer
        };
        Ok(Self {
            norms_residual: flag("norm_before_residual")?,
            config: Config {
                rope: RopeConfig {
                    half_split: pairs != RopePairs::Adjacent,
                    ..config.rope
                },
                vocab: model.vocab,
                ..config
            },
            layer,
            taps,
        })
    }
}

impl Config {
    /// Adds a head to the model.
    ///
    /// # Errors
    ///
    /// `Unsupported`.
    pub(crate) fn add_eagle3(&mut self, head: Eagle3) -> Result<()> {
        let own = head.config.rope.rotations.first().cloned();
        self.rope.rotations.extend(own);
        self.drafting = Some(Drafting::Eagle3(Box::new(head)));
        self.check_drafting()
    }

    /// Gives the head the frequencies of the model, which include its own.
    pub(crate) fn share_ropes(&mut self) {
        if let Some(Drafting::Eagle3(head)) = &mut self.drafting {
            head.config.rope.rotations.clone_from(&self.rope.rotations);
        }
    }
}

fn layer(head: &Eagle3) -> Layer {
    Layer {
        prefix: PREFIX,
        index: 0,
        config: head.layer,
    }
}

fn named(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Emits the store of the features of the model.
pub(super) fn follow(b: &mut Builder<'_>, c: &Config, head: &Eagle3, taps: &[X]) {
    let [low, middle, high] = taps else {
        return;
    };
    let x = b.concat_groups(1, [*low, *middle]);
    let x = b.concat_groups(1, [x, *high]); // [tokens, 3 dim]
    let features = parts::linear(b, &named("fc"), head.config.dim, x);
    drafting_rows::store_rows(b, c, [features, x]);
}

/// Emits the store of the keys and values of the head.
pub(super) fn keys(b: &mut Builder<'_>, c: &Config, head: &Eagle3) {
    let (l, own) = (layer(head), &head.config);
    let [x, _] = input(b, c, head);
    let k = l.project(b, own, "attn_k", l.config.kv_dim(), x);
    let v = l.project(b, own, "attn_v", l.config.kv_dim(), x);
    l.store_kv(b, own, [x, k, v]);
}

/// Emits the head.
pub(super) fn draft(b: &mut Builder<'_>, c: &Config, head: &Eagle3) {
    let (l, own) = (layer(head), &head.config);
    let [x, h] = input(b, c, head);
    let [q, k, v] = l.qkv(b, own, x);
    let a = l.attend(b, own, [q, k, v]);
    l.project_add(b, own, "attn_output", a, h);
    l.feed_forward(b, own, h);
    b.end_of_layer(h);
    let h = b.logit_rows(h);
    let w = b.vector(&named("output_norm.weight"), own.dim);
    let n = b.rms_norm(h, w, own.eps); // [tokens, dim]
    drafting_rows::store_rows(b, c, [h, n]);
    logits(b, c, head, n);
}

/// Logits of the vocabulary of the model: minus infinity for tokens that the head does not have.
fn logits(b: &mut Builder<'_>, c: &Config, head: &Eagle3, n: X) {
    let output = named("output");
    let weight = format!("{output}.weight");
    if !b.has(&weight) {
        return parts::logits_of(b, c, "output", n);
    }
    if !b.has(TOKEN_INDEX) {
        return parts::logits_of(b, &head.config, &output, n);
    }
    let rows = b.rows_of(&weight);
    let y = parts::linear(b, &output, rows, n); // [tokens, rows]
    let index = b.vector(TOKEN_INDEX, c.vocab);
    b.pick_logits(y, index);
}

/// `[norm embedding, norm features]` of the token and of the features at the previous position, `[tokens, 2 dim]`, and
/// the start of the residual stream.
fn input(b: &mut Builder<'_>, c: &Config, head: &Eagle3) -> [X; 2] {
    let (l, own) = (layer(head), &head.config);
    let embedding = named(parts::EMBEDDING);
    let e = match b.has(&format!("{embedding}.weight")) {
        true => parts::embed_by(b, own, &embedding),
        false => parts::embed(b, c),
    };
    let e = l.rms_norm(b, own, "attn_norm", e);
    let previous = drafting_rows::previous_row(b, c);
    let features = l.rms_norm(b, own, "attn_norm_2", previous);
    let x = b.concat_groups(1, [e, features]);
    let residual = match head.norms_residual {
        true => features,
        false => previous,
    };
    [x, residual]
}
