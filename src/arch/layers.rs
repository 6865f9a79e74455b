//! The layers of a model, worked out from its numbers.

use super::block::Block;
use super::config::Config;
use crate::error::{Result, bail};

impl Block {
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
