//! config.json: what differs from layer to layer.

use super::config::{Config, shown};
use crate::error::{Result, bail};
use crate::format::write::Writer;
use serde_json::Value;

/// Layers at most, as in [`arch::Config::validate`](crate::arch::Config::validate): lists of them
/// are made before it.
const LAYERS_MAX: u32 = 4096;

/// Names of layers with a window and of those that see all positions.
pub(super) const SLIDING: &str = "sliding_attention";
pub(super) const FULL: &str = "full_attention";

impl Config {
    /// Writes the numbers that may be others in layers with a window, and which layers those are.
    pub(super) fn write_layers(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let slides = self.sliding_layers()?;
        let key = |name: &str| format!("{arch}.{name}");
        let off = self.boolean("use_sliding_window")? == Some(false);
        let window = self.first(&["sliding_window", "local_attention"]);
        let window = match window {
            Some(path) => self.integer(path)?.unwrap_or(0),
            None => 0,
        };
        if !off && window > 0 && slides.contains(&true) {
            w.set(&key("attention.sliding_window"), window);
            w.list(&key("attention.sliding_window_pattern"), &slides);
        }
        self.write_heads(arch, &slides, w)?;
        self.write_widths(arch, w)?;
        if let Some(turned) = self.turned_layers()? {
            w.list(&key("rope.layers"), &turned);
        }
        Ok(())
    }

    /// Layers, as far as lists are made of them.
    fn layers(&self) -> Result<u32> {
        let path = self.first(&["num_hidden_layers", "n_layer"]);
        let layers = path.map(|path| self.integer(path)).transpose()?.flatten();
        Ok(layers.unwrap_or(0).min(LAYERS_MAX))
    }

    /// For each layer, whether it has a window, should the model have one: by name, or all but
    /// every n-th, or all from one on.
    fn sliding_layers(&self) -> Result<Vec<bool>> {
        let layers = self.layers()?;
        if let Some(types) = self.typed("layer_types", "a list", Value::as_array)? {
            if types.len() != layers as usize {
                bail!(
                    Format,
                    "layer_types: {} types for {layers} layers",
                    types.len()
                );
            }
            let slides = |kind: &Value| match kind.as_str() {
                Some(SLIDING) => Ok(true),
                Some(FULL) => Ok(false),
                _ => bail!(Unsupported, "layer_types: {} is not known", shown(kind)),
            };
            return types.iter().map(slides).collect();
        }
        let pattern = match self.first(&["sliding_window_pattern", "_sliding_window_pattern"]) {
            Some(path) => self.integer(path)?,
            None => None,
        };
        let global = self.integer("global_attn_every_n_layers")?;
        let first = self.integer("max_window_layers")?.unwrap_or(0);
        Ok((0..layers)
            .map(|layer| match (pattern, global) {
                (Some(n), _) => (layer + 1).checked_rem(n) != Some(0),
                (None, Some(n)) => layer.checked_rem(n) != Some(0),
                (None, None) => layer >= first,
            })
            .collect())
    }

    /// Elements of a head and key-value heads, which layers that see all positions may have for
    /// themselves.
    fn write_heads(&self, arch: &str, slides: &[bool], w: &mut Writer<'_>) -> Result<()> {
        let key = |name: &str| format!("{arch}.attention.{name}");
        let head_dim = self.integer("head_dim")?;
        let full = self.of_full_layers("head_dim", "global_head_dim")?;
        for (suffix, dim) in [("", full.or(head_dim)), ("_swa", full.and(head_dim))] {
            if let Some(dim) = dim {
                w.set(&key(&format!("key_length{suffix}")), dim);
                w.set(&key(&format!("value_length{suffix}")), dim);
            }
        }
        if let (Some(dim), Some(dim_swa)) = (full, head_dim) {
            w.set(&format!("{arch}.rope.dimension_count"), dim);
            w.set(&format!("{arch}.rope.dimension_count_swa"), dim_swa);
        }
        let Some(kv_heads) = self.integer("num_key_value_heads")? else {
            return Ok(());
        };
        // Those count only where values are keys.
        let alike = self.boolean("attention_k_eq_v")? == Some(true);
        match self.of_full_layers("num_key_value_heads", "num_global_key_value_heads")? {
            Some(full) if alike => {
                let heads = slides
                    .iter()
                    .map(|slides| if *slides { kv_heads } else { full });
                w.list(&key("head_count_kv"), &heads.collect::<Vec<_>>());
            }
            _ => _ = w.set(&key("head_count_kv"), kv_heads),
        }
        Ok(())
    }

    /// A number that layers without a window have for themselves: it has a name of its own, or
    /// stands in the configuration of the first layer that has one.
    fn of_full_layers(&self, name: &str, global: &str) -> Result<Option<u32>> {
        let layers = self.find("per_layer_config").and_then(Value::as_object);
        let own = layers.into_iter().flatten().find_map(|(layer, config)| {
            config.get(name)?;
            Some(format!("per_layer_config.{layer}.{name}"))
        });
        match own {
            Some(path) => self.integer(&path),
            None => self.integer(global),
        }
    }

    /// Widths of the feed-forward layers.
    fn write_widths(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let key = format!("{arch}.feed_forward_length");
        let path = self.first(&["intermediate_size", "n_inner"]);
        let width = path.map(|path| self.integer(path)).transpose()?.flatten();
        // Where it is left open, four times the stream.
        let stream = self.integer("n_embd")?.map(|dim| dim.saturating_mul(4));
        let Some(width) = width.or(stream) else {
            return Ok(());
        };
        let wide = self.boolean("use_double_wide_mlp")? == Some(true);
        let shared = self.integer("num_kv_shared_layers")?.unwrap_or(0);
        if !wide || shared == 0 {
            w.set(&key, width);
            return Ok(());
        }
        let layers = self.layers()?;
        let own = layers.saturating_sub(shared);
        let widths = (0..layers).map(|layer| match layer {
            n if n < own => width,
            _ => width.saturating_mul(2),
        });
        w.list(&key, &widths.collect::<Vec<_>>());
        Ok(())
    }

    /// Which layers turn by position: 1 in a list, or all but every n-th.
    fn turned_layers(&self) -> Result<Option<Vec<bool>>> {
        let list = |value: &Value| {
            let list = value.as_array()?.iter();
            list.map(|turned| Some(turned.as_u64()? != 0)).collect()
        };
        let said = self.typed("no_rope_layers", "a list of 0 and 1", list)?;
        let every = self.integer("no_rope_layer_interval")?;
        let layers = self.layers()?;
        let by_number = |n: u32| (1..=layers).map(move |layer| layer.checked_rem(n) != Some(0));
        Ok(said.or_else(|| every.map(|n| by_number(n).collect())))
    }
}
