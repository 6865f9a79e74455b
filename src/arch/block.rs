//! The layers of a model: what may differ from one to the next.

use crate::error::{Result, bail};
use crate::format::Metadata;

/// A layer's own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Width of the feed-forward layer.
    pub ffn: u32,
    /// Positions that a token sees, its own among them; 0: all.
    pub window: u32,
    /// Its rotation among [`Config::ropes`](super::Config::ropes); `None`: positions do not count.
    pub rope: Option<u32>,
    /// The layer whose keys and values it reads: itself, or an earlier one.
    pub cache: u32,
}

/// A number for all layers, or one for each.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Each {
    All(u32),
    List(Vec<u32>),
}

impl Each {
    /// What the key says; 0 where it is absent.
    pub(super) fn read(meta: &Metadata, key: &str) -> Result<Self> {
        Ok(match meta.get(key).and_then(|v| v.array()) {
            Some(_) => Self::List(meta.u32s(key)?.unwrap_or_default()),
            None => Self::All(meta.u32(key)?.unwrap_or(0)),
        })
    }

    /// The largest.
    pub(super) fn max(&self) -> u32 {
        match self {
            Self::All(n) => *n,
            Self::List(list) => list.iter().copied().max().unwrap_or(0),
        }
    }

    pub(super) fn of(&self, layer: u32, what: &str) -> Result<u32> {
        match self {
            Self::All(n) => Ok(*n),
            Self::List(list) => match list.get(layer as usize) {
                Some(n) => Ok(*n),
                None => bail!(
                    Format,
                    "{what} has {} numbers, layer {layer} has none",
                    list.len()
                ),
            },
        }
    }
}

/// Which layers have a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Slides {
    /// All.
    All,
    /// All but one of so many, which is the last of them, or the first.
    But { one_of: u32, first: bool },
    /// Each as it says.
    List(Vec<bool>),
}

impl Slides {
    pub(super) fn read(meta: &Metadata, key: &str) -> Result<Self> {
        let Some(value) = meta.get(key) else {
            return Ok(Self::All);
        };
        Ok(match value.array() {
            Some(_) => Self::List(meta.bools(key)?.unwrap_or_default()),
            None => Self::But {
                one_of: meta.u32(key)?.unwrap_or(0),
                first: false,
            },
        })
    }

    pub(super) fn of(&self, layer: u32, key: &str) -> Result<bool> {
        match self {
            Self::All => Ok(true),
            // Of none, as llama.cpp has it: no layer sees all.
            Self::But { one_of: 0, .. } => Ok(true),
            Self::But {
                one_of,
                first: true,
            } => Ok(!layer.is_multiple_of(*one_of)),
            Self::But { one_of, .. } => Ok(layer % one_of != one_of - 1),
            Self::List(list) => match list.get(layer as usize) {
                Some(slides) => Ok(*slides),
                None => bail!(
                    Format,
                    "{key} has {} layers, layer {layer} is none",
                    list.len()
                ),
            },
        }
    }
}

/// What files say of each layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lists {
    pub(super) heads: Each,
    pub(super) kv_heads: Each,
    pub(super) ffn: Each,
    /// Elements of a head in layers with a window.
    pub(super) head_dim_swa: u32,
    pub(super) slides: Slides,
    /// Which layers turn by position; `None`: all.
    pub(super) turned: Option<Vec<bool>>,
    /// Whether the file names its activation.
    pub(super) activation_said: bool,
}

impl Block {
    /// Elements of all query heads.
    pub fn q_dim(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Elements of all key heads.
    pub fn kv_dim(&self) -> u32 {
        self.kv_heads * self.head_dim
    }
}
