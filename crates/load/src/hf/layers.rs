//! Maps the per-layer values of `config.json` to GGUF keys.

use super::config::{HfConfig, integer};
use super::keys::ValueKind;
use crate::arch::{self, LayerKind, MixerRule};
use crate::error::{Result, bail};
use crate::format::write::Writer;
use serde_json::Value;

/// Maximum number of layers, as in [`arch::Config::validate`](crate::arch::Config::validate), which
/// runs after lists of this length are built.
const LAYERS_MAX: u32 = 4096;

/// Names of layers with sliding-window attention and with full attention.
pub(super) const SLIDING: &str = "sliding_attention";
pub(super) const FULL: &str = "full_attention";

impl HfConfig {
    /// Writes the number of frequencies of each axis of positions, which llama.cpp requires in files of some
    /// architectures.
    pub(super) fn write_sections(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let paths = ["rope_parameters", "rope_scaling"].map(|rope| format!("{rope}.mrope_section"));
        let list = |value: &Value| {
            let sections = value.as_array()?.iter();
            let sections = sections.map(|n| i32::try_from(n.as_u64()?).ok());
            sections.collect::<Option<Vec<i32>>>()
        };
        for path in &paths {
            if let Some(mut sections) = self.typed(path, "a list of numbers", list)? {
                sections.resize(4, 0);
                w.list(&format!("{arch}.rope.dimension_sections"), &sections);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes the keys of a drafter.
    pub(super) fn write_drafter(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let layers = |value: &Value| {
            let layers = value.as_array()?.iter();
            layers
                .map(|layer| u32::try_from(layer.as_u64()?).ok())
                .collect()
        };
        let path = "eagle_aux_hidden_state_layer_ids";
        let taps: Option<Vec<u32>> = self.typed(path, "a list of layers", layers)?;
        taps.map(|taps| w.list(&format!("{arch}.target_layers"), &taps));
        for key in ["norm_before_residual", "norm_before_fc"] {
            self.copy(key, ValueKind::Flag, &format!("{arch}.{key}"), w)?;
        }
        Ok(())
    }

    /// Writes the sliding-window layers and the values that differ between layers.
    pub(super) fn write_layers(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let sliding = self.sliding_layers()?;
        let key = |name: &str| format!("{arch}.{name}");
        let disabled = self.boolean("use_sliding_window")? == Some(false);
        let window = self.first(&["sliding_window", "local_attention"]);
        let window = match window {
            Some(path) => self.integer(path)?.unwrap_or(0),
            None => 0,
        };
        if !disabled && window > 0 && sliding.contains(&true) {
            w.set(&key("attention.sliding_window"), window);
            w.list(&key("attention.sliding_window_pattern"), &sliding);
        } else if self.has_full_attention_alone()? {
            // Otherwise some architectures have windows by default.
            w.list(&key("attention.sliding_window_pattern"), &sliding);
        }
        self.write_heads(arch, &sliding, w)?;
        self.write_widths(arch, w)?;
        self.write_sparsity(arch, w)?;
        if let Some(mut recurrent) = self.recurrent_layers()?
            && arch::find(arch)?.mixers == MixerRule::Listed
        {
            // The block that predicts later tokens has attention.
            recurrent.extend((self.predictors > 0).then_some(false));
            w.list(&key("attention.recurrent_layers"), &recurrent);
        }
        if let Some(rope_layers) = self.rope_layers()? {
            w.list(&key("rope.layers"), &rope_layers);
        }
        Ok(())
    }

    /// Returns the number of layers, limited to [`LAYERS_MAX`].
    pub(super) fn layers(&self) -> Result<u32> {
        if let Some(layers) = self.listed_layers()? {
            return Ok(layers.min(LAYERS_MAX));
        }
        let path = self.first(&["num_hidden_layers", "n_layer"]);
        let layers = path.map(|path| self.integer(path)).transpose()?.flatten();
        Ok(layers.unwrap_or(0).min(LAYERS_MAX))
    }

    /// Returns for each layer whether it has a sliding window: by name, or all except every n-th, or
    /// all starting with `max_window_layers`.
    fn sliding_layers(&self) -> Result<Vec<bool>> {
        let layers = self.layers()?;
        if let Some(types) = self.typed("layer_types", "a list", Value::as_array)? {
            if types.len() != layers as usize {
                bail!(
                    Format,
                    "layer_types: expected {layers} types, got {}",
                    types.len()
                );
            }
            // Checks the names.
            self.layer_kinds()?;
            return Ok(types.iter().map(|kind| kind == SLIDING).collect());
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

    /// Returns whether the file lists the type of each layer, and all have full attention.
    fn has_full_attention_alone(&self) -> Result<bool> {
        let types = self.typed("layer_types", "a list", Value::as_array)?;
        Ok(types.is_some_and(|types| types.iter().all(|kind| kind == FULL)))
    }

    /// Returns for each layer whether it has a recurrent state: by name, or all except every n-th; `None`
    /// without such layers.
    fn recurrent_layers(&self) -> Result<Option<Vec<bool>>> {
        if let Some(kinds) = self.layer_kinds()? {
            let recurrent: Vec<bool> = kinds.iter().map(|kind| *kind == LayerKind::State).collect();
            return Ok(recurrent.contains(&true).then_some(recurrent));
        }
        let interval = self.integer("full_attention_interval")?.filter(|n| *n > 0);
        let layers = self.layers()?;
        Ok(interval.map(|n| (1..=layers).map(|layer| layer % n != 0).collect()))
    }

    /// Writes the head dimension and the key-value heads, which may differ in full-attention layers.
    fn write_heads(&self, arch: &str, sliding: &[bool], w: &mut Writer<'_>) -> Result<()> {
        if self.is_latent() {
            return self.write_latent(arch, w);
        }
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
        // `num_global_key_value_heads` applies only with `attention_k_eq_v`.
        let k_eq_v = self.boolean("attention_k_eq_v")? == Some(true);
        match self.of_full_layers("num_key_value_heads", "num_global_key_value_heads")? {
            Some(full) if k_eq_v => {
                let heads = sliding
                    .iter()
                    .map(|sliding| if *sliding { kv_heads } else { full });
                w.list(&key("head_count_kv"), &heads.collect::<Vec<_>>());
            }
            _ => {
                let heads = |kind: LayerKind| match kind {
                    LayerKind::Attention => kv_heads,
                    _ => 0,
                };
                match self.of_kinds(arch, heads)? {
                    Some(heads) => w.list(&key("head_count_kv"), &heads),
                    None => w.set(&key("head_count_kv"), kv_heads),
                };
            }
        }
        Ok(())
    }

    /// Reads the value of full-attention layers: from the first entry of `per_layer_config`, otherwise
    /// from the key `global`.
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

    /// Writes the feed-forward widths.
    fn write_widths(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let key = format!("{arch}.feed_forward_length");
        let path = match self.expert_count()? {
            // The width of the shared feed-forward layer, which is the only one without experts.
            0 if self.find("shared_intermediate_size").is_some() => {
                Some("shared_intermediate_size")
            }
            _ => self.first(&["block_ff_dim", "intermediate_size", "n_inner"]),
        };
        if let Some(path) = path.filter(|path| self.find(path).is_some_and(Value::is_array)) {
            let widths = self.layer_values(path, integer)?;
            w.list(&key, &widths);
            return Ok(());
        }
        let width = path.map(|path| self.integer(path)).transpose()?.flatten();
        // GPT-2's default.
        let default = self.integer("n_embd")?.map(|dim| dim.saturating_mul(4));
        let Some(width) = width.or(default) else {
            return Ok(());
        };
        let width = self.adjusted_width(width)?;
        if arch::find(arch)?.mixers == MixerRule::One {
            let experts = self.integer("moe_intermediate_size")?.unwrap_or(0);
            let widths = |kind: LayerKind| match kind {
                LayerKind::FeedForward => width,
                LayerKind::Experts => experts,
                _ => 0,
            };
            if let Some(widths) = self.of_kinds(arch, widths)? {
                w.list(&key, &widths);
                return Ok(());
            }
        }
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

    /// Returns two thirds of a feed-forward width, multiplied and rounded up, if the file says so.
    fn adjusted_width(&self, width: u32) -> Result<u32> {
        if self.boolean("block_auto_adjust_ff_dim")? != Some(true) {
            return Ok(width);
        }
        let factor = self.float("block_ffn_dim_multiplier")?.unwrap_or(1.0);
        let multiple = self.integer("block_multiple_of")?.unwrap_or(256).max(1);
        #[expect(clippy::cast_possible_truncation, reason = "as `int` does in Python")]
        #[expect(
            clippy::cast_sign_loss,
            reason = "a negative factor becomes 0, which is rejected later"
        )]
        let width = (f64::from(factor) * f64::from(width / 3 * 2 + width % 3 * 2 / 3)) as u32;
        Ok(width.div_ceil(multiple).saturating_mul(multiple))
    }

    /// Reads a list with a value for each layer.
    fn layer_values<T>(&self, path: &str, read: fn(&Value) -> Option<T>) -> Result<Vec<T>> {
        let list = |value: &Value| value.as_array()?.iter().map(read).collect();
        let values: Option<Vec<T>> = self.typed(path, "a list of numbers", list)?;
        let (values, layers) = (values.unwrap_or_default(), self.layers()?);
        if values.len() != layers as usize {
            bail!(
                Format,
                "{path}: expected {layers} values, got {}",
                values.len()
            );
        }
        Ok(values)
    }

    /// Writes the cutoffs of the gates of layers with sparse activations, and the rows of per-layer embeddings.
    fn write_sparsity(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let rows = self.integer("vocab_size_per_layer_input")?;
        if rows != self.integer("vocab_size")?
            && let Some(rows) = rows
        {
            w.set(&format!("{arch}.{}", arch::LAYER_EMBEDDING_ROWS), rows);
        }
        let path = "activation_sparsity_pattern";
        if self.find(path).is_none() {
            return Ok(());
        }
        let mut cutoffs = Vec::new();
        for share in self.layer_values(path, Value::as_f64)? {
            if !(0.0..1.0).contains(&share) {
                bail!(Format, "{path}: expected numbers from 0 to 1, got {share}");
            }
            #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
            cutoffs.push(quantile(share) as f32);
        }
        w.list(&format!("{arch}.activation_sparsity_scale"), &cutoffs);
        Ok(())
    }

    /// Returns for each layer whether it applies RoPE: 1 in a list, or all except every n-th.
    fn rope_layers(&self) -> Result<Option<Vec<bool>>> {
        let list = |value: &Value| {
            let list = value.as_array()?.iter();
            list.map(|rope| Some(rope.as_u64()? != 0)).collect()
        };
        let explicit = self.typed("no_rope_layers", "a list of 0 and 1", list)?;
        let interval = self.integer("no_rope_layer_interval")?;
        let layers = self.layers()?;
        let by_number = |n: u32| (1..=layers).map(move |layer| layer.checked_rem(n) != Some(0));
        Ok(explicit.or_else(|| interval.map(|n| by_number(n).collect())))
    }
}

/// Returns the quantile of the standard normal distribution; negative infinity for 0.
fn quantile(share: f64) -> f64 {
    if share <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let density = |x: f64| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
    // The series 1/2 + density(x) (x + x^3 / 3 + x^5 / 15 + ...), whose terms all have the same sign.
    let distribution = |x: f64| {
        let (mut term, mut sum, mut n) = (x, x, 1.0);
        while term.abs() > f64::EPSILON * sum.abs() {
            n += 2.0;
            term *= x * x / n;
            sum += term;
        }
        0.5 + density(x) * sum
    };
    // Newton's method from 0 approaches the quantile from one side.
    let mut x = 0.0;
    for _ in 0..100 {
        let step = (share - distribution(x)) / density(x);
        x += step;
        if step.abs() <= 1e-15 {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_match_tables() {
        for (share, expected) in [
            (0.5, 0.0),
            (0.7, 0.524_400_512_708_041),
            (0.95, 1.644_853_626_951_473),
            (0.025, -1.959_963_984_540_054),
            (0.9999, 3.719_016_485_455_709),
            (0.0, f64::NEG_INFINITY),
        ] {
            let x = quantile(share);
            assert!(
                x == expected || (x - expected).abs() < 1e-12,
                "{share}: {x}"
            );
        }
    }
}
