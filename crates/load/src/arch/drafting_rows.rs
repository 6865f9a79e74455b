//! Rows that a drafting head reads at the previous position, in a KV cache without values.

use super::config::{Config, Drafting};
use super::layer_config::LayerConfig;
use super::parts::Layer;
use crate::error::{Result, bail};
use crate::plan::builder::{Builder, Heads, Rope, X};

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
