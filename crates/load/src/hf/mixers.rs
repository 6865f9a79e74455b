//! Maps the kinds of layers of hybrid models and their recurrent states to GGUF keys.

use super::config::{HfConfig, shown};
use crate::arch::{self, ConfigRule, LayerKind, MixerRule};
use crate::error::{Result, bail};
use crate::format::write::Writer;
use serde_json::Value;

/// Names of layers in lists, and their kinds.
const NAMES: &[(&str, LayerKind)] = &[
    ("full_attention", LayerKind::Attention),
    ("sliding_attention", LayerKind::Attention),
    ("attention", LayerKind::Attention),
    ("linear_attention", LayerKind::State),
    ("mamba", LayerKind::State),
    ("conv", LayerKind::State),
    ("mlp", LayerKind::FeedForward),
    ("moe", LayerKind::Experts),
];

/// Letters of layers in `hybrid_override_pattern`.
const LETTERS: &[(char, LayerKind)] = &[
    ('*', LayerKind::Attention),
    ('M', LayerKind::State),
    ('-', LayerKind::FeedForward),
    ('E', LayerKind::Experts),
];

/// Key of the letters.
const PATTERN: &str = "hybrid_override_pattern";

/// Lists of names, and those whose length is the number of layers.
const LISTS: [&str; 2] = ["layers_block_type", "layer_types"];

/// Key of the layers with attention.
const ATTENTION: &str = "full_attn_idxs";

impl HfConfig {
    /// Returns the kinds of all layers; `None` if the file does not list them.
    pub(super) fn layer_kinds(&self) -> Result<Option<Vec<LayerKind>>> {
        for list in LISTS {
            if let Some(names) = self.typed(list, "a list", Value::as_array)? {
                let kind = |name: &Value| {
                    let known = NAMES.iter().find(|(known, _)| name == known);
                    match known {
                        Some((_, kind)) => Ok(*kind),
                        None => bail!(
                            Unsupported,
                            "{list}: unsupported layer type {}",
                            shown(name)
                        ),
                    }
                };
                return names.iter().map(kind).collect::<Result<_>>().map(Some);
            }
        }
        if let Some(pattern) = self.text(PATTERN)? {
            let kind = |letter: char| match LETTERS.iter().find(|(known, _)| *known == letter) {
                Some((_, kind)) => Ok(*kind),
                None => bail!(Unsupported, "{PATTERN}: unsupported layer type {letter:?}"),
            };
            return pattern.chars().map(kind).collect::<Result<_>>().map(Some);
        }
        let indices = |value: &Value| -> Option<Vec<u64>> {
            value.as_array()?.iter().map(Value::as_u64).collect()
        };
        let attention = self.typed(ATTENTION, "a list of layers", indices)?;
        let layers = u64::from(self.layers()?);
        Ok(attention.map(|attention| {
            let kind = |layer: u64| match attention.contains(&layer) {
                true => LayerKind::Attention,
                false => LayerKind::State,
            };
            (0..layers).map(kind).collect()
        }))
    }

    /// Returns the number of layers if a list of kinds determines it.
    pub(super) fn listed_layers(&self) -> Result<Option<u32>> {
        let listed = self.find(LISTS[0]).is_some() || self.find(PATTERN).is_some();
        let kinds = match listed {
            true => self.layer_kinds()?,
            false => None,
        };
        Ok(kinds.map(|kinds| u32::try_from(kinds.len()).unwrap_or(u32::MAX)))
    }

    /// Returns the values of layers of one kind in place of `value`, and 0 for the others; `None` unless the
    /// architecture tells kinds apart by this.
    pub(super) fn of_kinds(
        &self,
        arch: &str,
        value: impl Fn(LayerKind) -> u32,
    ) -> Result<Option<Vec<u32>>> {
        let rule = arch::find(arch)?.mixers;
        if !matches!(rule, MixerRule::WithoutHeads | MixerRule::One) {
            return Ok(None);
        }
        let kinds = self.layer_kinds()?;
        Ok(kinds.map(|kinds| kinds.into_iter().map(value).collect()))
    }

    /// Writes the hyperparameters of recurrent layers that are not copied.
    pub(super) fn write_states(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let key = |name: &str| format!("{arch}.{name}");
        if let Some((width, names)) = self.inner_size()? {
            let Ok(width) = u32::try_from(width) else {
                bail!(Format, "{names}: the product does not fit 32 bits");
            };
            w.set(&key("ssm.inner_size"), width);
        }
        if self.find("linear_num_value_heads").is_some() {
            w.set(&key(arch::INTERLEAVED_HEADS), false);
        }
        if let Some(limit) = self.typed("time_step_limit", "two numbers", limit)? {
            w.list(&key(arch::TIME_STEP_LIMIT), &limit);
        }
        if let Some(before) = self.boolean("mamba_norm_before_gate")? {
            w.set(&key(arch::NORM_BEFORE_GATE), before);
        }
        if self.hf_model.rule == Some(ConfigRule::OptionalRope) {
            match self.text("position_embedding_type")? {
                Some("rope") => _ = w.set(&key("rope.scaling.finetuned"), true),
                None | Some("nope") => _ = w.set(&key("rope.scaling.finetuned"), false),
                Some(other) => bail!(
                    Unsupported,
                    "unsupported position_embedding_type: {other:?}"
                ),
            }
        }
        Ok(())
    }

    /// Returns the width of recurrent layers, and the keys that it is computed from.
    fn inner_size(&self) -> Result<Option<(u64, String)>> {
        if let Some(width) = self.integer("mamba_d_ssm")? {
            return Ok(Some((width.into(), "mamba_d_ssm".to_string())));
        }
        for pair in [
            ["linear_num_value_heads", "linear_value_head_dim"],
            ["mamba_num_heads", "mamba_head_dim"],
            ["mamba_expand", "hidden_size"],
        ] {
            let [first, second] = pair.map(|name| self.integer(name));
            if let (Some(first), Some(second)) = (first?, second?) {
                let product = u64::from(first) * u64::from(second);
                let [a, b] = pair;
                return Ok(Some((product, format!("{a} {first} and {b} {second}"))));
            }
        }
        Ok(None)
    }
}

/// Reads a range of numbers, which may be infinite.
fn limit(value: &Value) -> Option<Vec<f32>> {
    let number = |value: &Value| {
        let text = value.get("__float__").and_then(Value::as_str);
        #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
        match (value.as_f64(), text) {
            (Some(number), _) => Some(number as f32),
            (_, Some("Infinity")) => Some(f32::INFINITY),
            _ => None,
        }
    };
    let list: Vec<f32> = value
        .as_array()?
        .iter()
        .map(number)
        .collect::<Option<_>>()?;
    (list.len() == 2).then_some(list)
}
