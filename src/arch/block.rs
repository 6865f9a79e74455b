//! The layers of a model: what may differ from one to the next.

use super::Config;
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
    /// Its rotation among [`Config::ropes`]; `None`: positions do not count.
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

    fn of(&self, layer: u32, what: &str) -> Result<u32> {
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

    fn of(&self, layer: u32, key: &str) -> Result<bool> {
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

    /// The layers of a model whose numbers are in range.
    pub(super) fn all(c: &Config) -> Result<Vec<Self>> {
        let mut blocks: Vec<Self> = Vec::new();
        let own = c.layers.saturating_sub(c.shared_kv);
        for layer in 0..c.layers {
            let mut block = Self::of(c, layer)?;
            if layer >= own {
                // The last layer of its kind that has keys and values.
                let kind = |b: &Self| (b.window > 0, b.kv_dim());
                let alike = blocks[..own as usize]
                    .iter()
                    .rposition(|b| kind(b) == kind(&block));
                let Some(source) = alike.and_then(|i| u32::try_from(i).ok()) else {
                    bail!(
                        Format,
                        "{}.attention.shared_kv_layers: layer {layer} shares keys and values, \
                         and none of the {own} layers that have some is of its kind",
                        c.architecture
                    );
                };
                block.cache = source;
            }
            blocks.push(block);
        }
        Ok(blocks)
    }

    fn of(c: &Config, layer: u32) -> Result<Self> {
        let arch = &c.architecture;
        let key = |name: &str| format!("{arch}.{name}");
        let pattern = key("attention.sliding_window_pattern");
        let slides = c.window > 0 && c.lists.slides.of(layer, &pattern)?;
        let turned = match &c.lists.turned {
            None => true,
            Some(list) => list.get(layer as usize).copied().unwrap_or(true),
        };
        let rope = u32::from(slides && c.ropes.len() > 1);
        let block = Self {
            heads: c.lists.heads.of(layer, &key("attention.head_count"))?,
            kv_heads: c
                .lists
                .kv_heads
                .of(layer, &key("attention.head_count_kv"))?,
            head_dim: if slides {
                c.lists.head_dim_swa
            } else {
                c.head_dim
            },
            ffn: c.lists.ffn.of(layer, &key("feed_forward_length"))?,
            window: if slides { c.window } else { 0 },
            rope: turned.then_some(rope),
            cache: layer,
        };
        block.check(c, layer)?;
        Ok(block)
    }

    /// Holds a layer's numbers to each other.
    fn check(&self, c: &Config, layer: u32) -> Result<()> {
        let Self {
            heads,
            kv_heads,
            head_dim,
            ffn,
            ..
        } = *self;
        let arch = &c.architecture;
        if [heads, kv_heads, head_dim, ffn].contains(&0) {
            bail!(
                Format,
                "{arch}.attention.head_count, head_count_kv, key_length, feed_forward_length: layer \
                 {layer} has {heads} heads, {kv_heads} key-value heads of {head_dim} elements and a \
                 feed-forward layer of {ffn}"
            );
        }
        if !heads.is_multiple_of(kv_heads) {
            bail!(
                Format,
                "{arch}.attention.head_count_kv: {heads} heads do not share {kv_heads} evenly"
            );
        }
        let layers = if self.window > 0 && c.ropes.len() > 1 {
            "_swa"
        } else {
            ""
        };
        let rope_dim = self.rope.map_or(0, |i| c.ropes[i as usize].dim);
        if rope_dim > head_dim || !rope_dim.is_multiple_of(2) || !head_dim.is_multiple_of(2) {
            bail!(
                Format,
                "{arch}.rope.dimension_count{layers}: {rope_dim} of the {head_dim} elements of a head \
                 (attention.key_length{layers}) turn, wanted even numbers"
            );
        }
        Ok(())
    }
}
