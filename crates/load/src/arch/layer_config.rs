//! Hyperparameters that may differ between layers.

use crate::error::{Result, bail};
use crate::format::Metadata;

/// Hyperparameters of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Head dimension.
    pub head_dim: u32,
    /// Width of the feed-forward layer.
    pub ffn: u32,
    /// Number of experts; 0 means a dense layer.
    pub experts: u32,
    /// Size of the sliding window in positions, including the token's own; 0 means full attention.
    pub window: u32,
    /// Index of its RoPE in `RopeConfig::rotations`; `None` means no RoPE.
    pub rope: Option<u32>,
    /// Index of the layer whose KV cache it uses: its own or an earlier one.
    pub cache: u32,
    /// How it mixes positions.
    pub mixer: Mixer,
    /// Whether a row of its cache is key and value, as in multi-head latent attention.
    pub latent: bool,
    /// Number of positions, at the start of a sequence, that later positions do not see.
    pub skip: u32,
}

/// How a layer mixes positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixer {
    /// Attention with a KV cache.
    Attention,
    /// A recurrent state.
    State,
    /// Attention and a recurrent state.
    Both,
    /// Not at all: it is only a feed-forward layer.
    None,
}

impl Mixer {
    /// Returns whether the layer has attention and a KV cache.
    pub(crate) fn has_attention(self) -> bool {
        matches!(self, Self::Attention | Self::Both)
    }

    /// Returns whether the layer has a recurrent state.
    pub(crate) fn has_state(self) -> bool {
        matches!(self, Self::State | Self::Both)
    }
}

/// Kind of a layer in lists of Hugging Face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Attention, in most architectures with a feed-forward layer.
    Attention,
    /// A recurrent state, in most architectures with a feed-forward layer.
    State,
    /// Only a feed-forward layer.
    FeedForward,
    /// Only a mixture of experts.
    Experts,
}

/// How the files of an architecture with recurrent states say which layers have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixerRule {
    /// By a list or a period.
    Listed,
    /// Layers without key and value heads have a state.
    WithoutHeads,
    /// Layers have attention, a feed-forward layer or a state: key and value heads, a feed-forward width, or neither.
    One,
    /// All layers have attention and a state.
    Both,
}

/// A value for all layers, or one per layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LayerValues {
    All(u32),
    List(Vec<u32>),
}

impl LayerValues {
    /// Reads a number or a list; 0 if the key is absent.
    pub(super) fn read(meta: &Metadata, key: &str) -> Result<Self> {
        Ok(match meta.get(key).and_then(|v| v.array()) {
            Some(_) => Self::List(meta.u32s(key)?.unwrap_or_default()),
            None => Self::All(meta.u32(key)?.unwrap_or(0)),
        })
    }

    /// Returns the largest value.
    pub(super) fn max(&self) -> u32 {
        match self {
            Self::All(n) => *n,
            Self::List(list) => list.iter().copied().max().unwrap_or(0),
        }
    }

    /// Returns the value of a layer.
    ///
    /// # Errors
    ///
    /// `Format` if the list is too short.
    pub(super) fn of(&self, layer: u32, key: &str) -> Result<u32> {
        match self {
            Self::All(n) => Ok(*n),
            Self::List(list) => match list.get(layer as usize) {
                Some(n) => Ok(*n),
                None => bail!(
                    Format,
                    "{key} has {} values, but layer {layer} needs one",
                    list.len()
                ),
            },
        }
    }
}

/// Layers with a sliding window.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SlidingPattern {
    /// All layers.
    All,
    /// All layers except one in each group of `period` layers: the first or the last of the group.
    Periodic { period: u32, full_first: bool },
    /// A flag per layer.
    List(Vec<bool>),
}

impl SlidingPattern {
    /// Reads a period or a list of flags.
    pub(super) fn read(meta: &Metadata, key: &str) -> Result<Self> {
        let Some(value) = meta.get(key) else {
            return Ok(Self::All);
        };
        Ok(match value.array() {
            Some(_) => Self::List(meta.bools(key)?.unwrap_or_default()),
            None => Self::Periodic {
                period: meta.u32(key)?.unwrap_or(0),
                full_first: false,
            },
        })
    }

    /// Returns whether a layer has a sliding window.
    ///
    /// # Errors
    ///
    /// `Format` if the list is too short.
    pub(super) fn of(&self, layer: u32, key: &str) -> Result<bool> {
        match self {
            Self::All => Ok(true),
            // As in llama.cpp, period 0 means that no layer has full attention.
            Self::Periodic { period: 0, .. } => Ok(true),
            Self::Periodic {
                period,
                full_first: true,
            } => Ok(!layer.is_multiple_of(*period)),
            Self::Periodic { period, .. } => Ok(layer % period != period - 1),
            Self::List(list) => match list.get(layer as usize) {
                Some(sliding) => Ok(*sliding),
                None => bail!(
                    Format,
                    "{key} has {} values, but layer {layer} needs one",
                    list.len()
                ),
            },
        }
    }
}

/// Layers with a recurrent state.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RecurrentPattern {
    /// No layer.
    None,
    /// All layers except the last of each group of this many layers.
    Periodic(u32),
    /// A flag per layer.
    List(Vec<bool>),
}

impl RecurrentPattern {
    /// Returns whether a layer has a recurrent state.
    ///
    /// # Errors
    ///
    /// `Format` if the list is too short.
    pub(super) fn of(&self, layer: u32, key: &str) -> Result<bool> {
        match self {
            Self::None => Ok(false),
            Self::Periodic(period) => Ok(!(layer + 1).is_multiple_of(*period)),
            Self::List(list) => match list.get(layer as usize) {
                Some(recurrent) => Ok(*recurrent),
                None => bail!(
                    Format,
                    "{key} has {} values, but layer {layer} needs one",
                    list.len()
                ),
            },
        }
    }
}

impl LayerConfig {
    /// Returns the width of all query heads.
    pub fn q_dim(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Returns the width of all keys and values of a position in the cache.
    pub(crate) fn cache_width(&self) -> u32 {
        match self.latent {
            true => self.kv_dim(),
            false => 2 * self.kv_dim(),
        }
    }

    /// Returns the width of all key heads.
    pub fn kv_dim(&self) -> u32 {
        self.kv_heads * self.head_dim
    }
}
