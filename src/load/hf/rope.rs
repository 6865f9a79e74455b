//! config.json: how RoPE is scaled, and how much of a head it turns.

use super::config::Config;
use super::keys::Kind::{self, Flag, Float, Integer};
use crate::arch::Quirk;
use crate::error::{Result, bail};
use crate::format::write::Writer;

/// Where the numbers of a scaling stand, oldest first. Where layers differ, those that see all
/// positions are scaled.
const PLACES: [&str; 3] = [
    "rope_scaling",
    "rope_parameters",
    "rope_parameters.full_attention",
];

/// Keys behind `rope.scaling.`, how they are read, and their names in configurations.
pub(super) const SCALING: &[(&str, Kind, &str)] = &[
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
    ("mscale_all_dim", Float, "mscale_all_dim"),
    ("truncate", Flag, "truncate"),
];

/// Divisors of each pair, by the same names on both sides.
const LISTS: [&str; 2] = ["short_factor", "long_factor"];

/// Names of a scaling that have changed.
const RENAMED: [(&str, &str); 2] = [("default", "none"), ("su", "longrope")];

/// Scalings that work without a factor.
const NO_FACTOR: [&str; 3] = ["none", "longrope", PARTIAL];

/// The scaling that turns a part of the pairs at the speed of all.
const PARTIAL: &str = "proportional";

impl Config {
    /// Writes how RoPE is scaled, and how much of a head it turns.
    pub(super) fn write_scaling(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        for name in ["rope_scaling", "rope_parameters"] {
            if let Some(value) = self.find(name).filter(|value| !value.is_object()) {
                bail!(Format, "{name}: wanted an object, found {value}");
            }
        }
        let key = |name: &str| format!("{arch}.rope.scaling.{name}");
        // `type` is the older name.
        let kind = ["rope_type", "type"].map(|name| self.rope_path(name));
        let mut said = "";
        if let Some(path) = kind.into_iter().flatten().next()
            && let Some(kind) = self.text(&path)?
        {
            let renamed = RENAMED.iter().find(|(old, _)| *old == kind);
            let kind = renamed.map_or(kind, |(_, new)| *new);
            if !NO_FACTOR.contains(&kind) && self.rope_path("factor").is_none() {
                bail!(Format, "{path}: {kind:?} has no factor beside it");
            }
            w.set(&key("type"), kind);
            said = kind;
        }
        for (name, kind, hf) in SCALING {
            let path = self.rope_path(hf).unwrap_or_else(|| (*hf).to_string());
            self.copy(&path, *kind, &key(name), w)?;
        }
        for name in LISTS {
            if let Some(path) = self.rope_path(name)
                && let Some(list) = self.floats(&path)?
            {
                w.list(&key(name), &list);
            }
        }
        self.write_share(arch, said, w)
    }

    /// Where a number of the scaling stands.
    fn rope_path(&self, name: &str) -> Option<String> {
        let paths = PLACES.iter().map(|place| format!("{place}.{name}"));
        paths.into_iter().find(|path| self.find(path).is_some())
    }

    /// The part of a head that is turned, under a scaling of this kind.
    fn write_share(&self, arch: &str, kind: &str, w: &mut Writer<'_>) -> Result<()> {
        let name = "partial_rotary_factor";
        let path = self.rope_path(name).unwrap_or_else(|| name.to_string());
        let Some(share) = self.float(&path)? else {
            return Ok(());
        };
        if kind == PARTIAL {
            w.set(&format!("{arch}.rope.scaling.partial"), share);
        } else if self.checkpoint.quirk == Some(Quirk::PartialRotary)
            && let Some(head_dim) = self.head_dim()?
        {
            #[expect(clippy::cast_possible_truncation, reason = "as `int` does in Python")]
            #[expect(
                clippy::cast_sign_loss,
                reason = "a negative one becomes 0, the whole head"
            )]
            let turned = (f64::from(head_dim) * f64::from(share)) as u32;
            w.set(&format!("{arch}.rope.dimension_count"), turned);
        }
        Ok(())
    }
}
