//! Maps RoPE scaling and the rotary dimension of `config.json` to GGUF keys.

use super::config::HfConfig;
use super::keys::ValueKind::{self, Flag, Float, Integer};
use crate::arch::ConfigRule;
use crate::error::{Result, bail};
use crate::format::write::Writer;

/// Objects with the scaling parameters, oldest format first. If layers differ, the scaling applies to
/// full-attention layers.
const OBJECTS: [&str; 3] = [
    "rope_scaling",
    "rope_parameters",
    "rope_parameters.full_attention",
];

/// GGUF key after `rope.scaling.`, type, and name in `config.json`.
pub(super) const SCALING: &[(&str, ValueKind, &str)] = &[
    ("factor", Float, "factor"),
    ("attn_factor", Float, "attention_factor"),
    ("low_freq_factor", Float, "low_freq_factor"),
    ("high_freq_factor", Float, "high_freq_factor"),
    (
        "original_context_length",
        Integer,
        "original_max_position_embeddings",
    ),
    ("yarn_beta_fast", Float, "beta_fast"),
    ("yarn_beta_slow", Float, "beta_slow"),
    ("mscale", Float, "mscale"),
    ("short_mscale", Float, "short_mscale"),
    ("long_mscale", Float, "long_mscale"),
    ("mscale_all_dim", Float, "mscale_all_dim"),
    (LOG_MULTIPLIER, Float, "mscale_all_dim"),
    ("truncate", Flag, "truncate"),
];

/// GGUF name of `mscale_all_dim`.
const LOG_MULTIPLIER: &str = "yarn_log_multiplier";

/// Factor lists of LongRoPE, with the same names in GGUF and `config.json`.
const LISTS: [&str; 2] = ["short_factor", "long_factor"];

/// Renamed scaling types: `config.json` name and GGUF name.
const RENAMED: [(&str, &str); 2] = [("default", "none"), ("su", "longrope")];

/// Scaling types without a required factor.
const NO_FACTOR: [&str; 3] = ["none", "longrope", PARTIAL];

/// Scaling type that rotates only a part of the pairs, with the frequencies of the whole head.
const PARTIAL: &str = "proportional";

impl HfConfig {
    /// Writes the RoPE scaling and the rotary dimension.
    pub(super) fn write_scaling(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        for name in ["rope_scaling", "rope_parameters"] {
            if let Some(value) = self.find(name).filter(|value| !value.is_object()) {
                bail!(Format, "{name}: expected an object, got {value}");
            }
        }
        let key = |name: &str| format!("{arch}.rope.scaling.{name}");
        // `type` is the older name.
        let kind = ["rope_type", "type"].map(|name| self.rope_path(name));
        let mut scaling_type = "";
        if let Some(path) = kind.into_iter().flatten().next()
            && let Some(kind) = self.text(&path)?
        {
            let renamed = RENAMED.iter().find(|(old, _)| *old == kind);
            let kind = renamed.map_or(kind, |(_, new)| *new);
            if !NO_FACTOR.contains(&kind) && self.rope_path("factor").is_none() {
                bail!(Format, "{path}: {kind:?} requires a factor");
            }
            w.set(&key("type"), kind);
            scaling_type = kind;
        }
        for (name, kind, hf) in SCALING {
            let path = self.rope_path(hf).unwrap_or_else(|| (*hf).to_string());
            if *name == LOG_MULTIPLIER && self.is_latent() {
                // A tenth, unlike in files of other architectures.
                if let Some(all) = self.float(&path)? {
                    w.set(&key(name), 0.1 * all);
                }
                continue;
            }
            self.copy(&path, *kind, &key(name), w)?;
        }
        for name in LISTS {
            if let Some(path) = self.rope_path(name)
                && let Some(list) = self.floats(&path)?
            {
                w.list(&key(name), &list);
            }
        }
        self.write_rotary_dim(arch, scaling_type, w)
    }

    /// Returns the path of a scaling parameter.
    fn rope_path(&self, name: &str) -> Option<String> {
        let paths = OBJECTS.iter().map(|object| format!("{object}.{name}"));
        paths.into_iter().find(|path| self.find(path).is_some())
    }

    /// Writes the rotated part of a head, for a scaling type.
    fn write_rotary_dim(&self, arch: &str, kind: &str, w: &mut Writer<'_>) -> Result<()> {
        let name = "partial_rotary_factor";
        let path = self.rope_path(name).unwrap_or_else(|| name.to_string());
        let Some(fraction) = self.float(&path)? else {
            return Ok(());
        };
        if kind == PARTIAL {
            w.set(&format!("{arch}.rope.scaling.partial"), fraction);
        } else if self.hf_model.rule == Some(ConfigRule::PartialRotary)
            && let Some(head_dim) = self.head_dim()?
        {
            #[expect(clippy::cast_possible_truncation, reason = "as `int` does in Python")]
            #[expect(
                clippy::cast_sign_loss,
                reason = "a negative factor becomes 0, which means the whole head"
            )]
            let rotary_dim = (f64::from(head_dim) * f64::from(fraction)) as u32;
            w.set(&format!("{arch}.rope.dimension_count"), rotary_dim);
        }
        Ok(())
    }
}
