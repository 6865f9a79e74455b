//! Drafting heads: small parts of a model that draft its next tokens.
//!
//! The row of a head at a position combines the embedding of its token and what the model computed at the previous
//! position (its output, for [MTP](super::mtp), or features of three layers, for [EAGLE-3](super::eagle3)), so that the
//! KV cache of the head depends on the same tokens as those of the layers. Every table stores what the model computes,
//! and the keys and values of the head ([`follow`]); the draft table computes the head ([`draft`]), which continues
//! with its own rows. These rows are in a KV cache because a sequence may continue at any position.

use super::eagle3::{self, Eagle3};
use super::layer_config::LayerConfig;
use super::mtp::{self, HeadBlock};
use super::parts::Layer;
use super::{Arch, Config};
use crate::error::{Result, bail};
use crate::op::builder::{Builder, Heads, Rope, X};

/// Drafting head of a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Drafting {
    /// A block of the model after its layers.
    Mtp(LayerConfig),
    /// A layer with its own hyperparameters.
    Eagle3(Box<Eagle3>),
}

/// Maximum number of elements that a row is divided into, as heads of a KV cache.
const PART_MAX: u32 = 256;

impl Drafting {
    /// Returns the name of the method.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Mtp(_) => "MTP",
            Self::Eagle3(_) => "EAGLE-3",
        }
    }

    /// Returns the layer of the head.
    fn layer(&self) -> LayerConfig {
        match self {
            Self::Mtp(layer) => *layer,
            Self::Eagle3(head) => head.layer,
        }
    }

    /// Returns the rows that the head reads, of `dim` elements, as a KV cache without values.
    fn rows(&self, dim: u32) -> LayerConfig {
        let divides = |part: &u32| dim.is_multiple_of(*part);
        let smaller = (1..=PART_MAX / 2).rev().map(|half| 2 * half);
        let head_dim = [64].into_iter().chain(smaller).find(divides).unwrap_or(2);
        let layer = self.layer();
        LayerConfig {
            heads: 0,
            kv_heads: dim / head_dim,
            head_dim,
            cache: layer.cache + 1,
            latent: true,
            ..layer
        }
    }
}

impl Config {
    /// Returns the layers with a KV cache of their own, and those of the drafting head.
    pub(crate) fn caches(&self) -> impl Iterator<Item = LayerConfig> {
        let layers = (0..).zip(&self.layer_configs);
        let own = layers
            .filter(|(index, layer)| layer.cache == *index && layer.mixer.has_attention())
            .map(|(_, layer)| *layer);
        let head = self.drafting.as_ref();
        let head = head.map(|head| [head.layer(), head.rows(self.drafting_dim())]);
        own.chain(head.into_iter().flatten())
    }

    /// Returns the width of the rows that the drafting head reads.
    fn drafting_dim(&self) -> u32 {
        match &self.drafting {
            Some(Drafting::Eagle3(head)) => head.config.dim,
            _ => self.dim,
        }
    }

    /// Rejects rows of the drafting head that a KV cache cannot store.
    ///
    /// # Errors
    ///
    /// `Unsupported`.
    pub(super) fn check_drafting(&self) -> Result<()> {
        let dim = self.drafting_dim();
        if !dim.is_multiple_of(2) {
            bail!(
                Unsupported,
                "a drafting head requires an even embedding length, got {dim}"
            );
        }
        Ok(())
    }
}

/// Emits what a drafting head needs of a pass through the layers. `h` is the residual stream after the last layer,
/// `taps` what it was before the layers of [`taps`].
pub(super) fn follow(
    b: &mut Builder<'_>,
    c: &Config,
    (h, taps): (X, &[X]),
    block: Option<HeadBlock>,
) {
    if b.ends_with_rows() {
        return;
    }
    match (&c.drafting, block) {
        (Some(Drafting::Mtp(layer)), Some(block)) => mtp::follow(b, c, (*layer, h), block),
        (Some(Drafting::Eagle3(head)), _) => eagle3::follow(b, c, head, taps),
        _ => {}
    }
}

/// Returns whether a drafting head reads the residual stream before this layer, or after the last one.
pub(super) fn taps(b: &Builder<'_>, c: &Config, layer: u32) -> bool {
    match &c.drafting {
        Some(Drafting::Eagle3(head)) => head.taps.contains(&layer) && !b.ends_with_rows(),
        _ => false,
    }
}

/// Emits the head: the logits of the next token but one.
pub(crate) fn draft(b: &mut Builder<'_>, c: &Config, arch: &Arch) {
    match (&c.drafting, arch.mtp) {
        (Some(Drafting::Mtp(layer)), Some(block)) => mtp::draft(b, c, *layer, block),
        (Some(Drafting::Eagle3(head)), _) => eagle3::draft(b, c, head),
        _ => unreachable!("only models with a drafting head have a draft table"),
    }
}

/// Returns the heads of the rows that the head reads.
fn row_heads(c: &Config) -> Option<Heads> {
    let config = c.drafting.as_ref()?.rows(c.drafting_dim());
    let layer = Layer {
        prefix: "",
        index: c.layers,
        config,
    };
    Some(layer.heads())
}

/// Emits the store of rows `y`; `x` is another activation with the same tokens.
pub(super) fn store_rows(b: &mut Builder<'_>, c: &Config, [y, x]: [X; 2]) {
    let without_rotation = Rope {
        index: 0,
        dim: 0,
        half_split: true,
        magnitude: 1.0,
    };
    if let Some(at) = row_heads(c) {
        b.rope_keys(at, without_rotation, x, y);
    }
}

/// Emits the load of the rows of the previous positions, `[tokens, dim]`.
pub(super) fn previous_row(b: &mut Builder<'_>, c: &Config) -> X {
    match row_heads(c) {
        Some(at) => b.previous_row(at),
        None => unreachable!("the model has a drafting head"),
    }
}
