//! RoPE frequencies, with the factors of the files.

use super::Catalog;
use crate::arch::{Config, RopeScaling};
use crate::error::{Result, bail};
use crate::weight::floats;

const ROPE_FACTORS: &str = "rope_freqs.weight";
const ROPE_SHORT: &str = "rope_factors_short.weight";
const ROPE_LONG: &str = "rope_factors_long.weight";

impl Catalog {
    /// Computes the RoPE frequencies for `context` positions, with the factors of the file if any.
    pub(crate) fn add_rope(&mut self, config: &mut Config, context: u32) -> Result<()> {
        let floats = |name: &str| {
            let tensor = self.file().tensor(name);
            tensor.map(|t| floats(self.file(), t)).transpose()
        };
        let factors = floats(ROPE_FACTORS)?;
        let (short_list, long_list) = (floats(ROPE_SHORT)?, floats(ROPE_LONG)?);
        let mut freqs = Vec::new();
        for (i, rotation) in config.rope.rotations.iter_mut().enumerate() {
            if i == 0 && !matches!(rotation.scaling, RopeScaling::Long { .. }) {
                let lists = [(ROPE_SHORT, &short_list), (ROPE_LONG, &long_list)];
                if let Some((name, _)) = lists.iter().find(|(_, list)| list.is_some()) {
                    bail!(
                        Format,
                        "{}.rope.scaling.attn_factor is missing, but tensor {name} requires it",
                        config.architecture
                    );
                }
            }
            if let RopeScaling::Long { short, long, .. } = &mut rotation.scaling {
                for (list, tensor) in [(short, &short_list), (long, &long_list)] {
                    if let Some(values) = tensor {
                        list.clone_from(values);
                    }
                }
            }
            // The factors of a file apply to layers with full attention.
            let factors = factors.as_deref().filter(|_| i == 0);
            freqs.push(rotation.freqs(factors, context)?);
            rotation.select_magnitude(context);
        }
        self.rope_freqs = freqs;
        config.share_ropes();
        Ok(())
    }
}
