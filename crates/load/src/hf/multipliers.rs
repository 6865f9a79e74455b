//! Maps the multipliers of projections in `config.json`, which GGUF files have in their weights.

use super::config::HfConfig;
use crate::arch;
use crate::error::{Result, bail};
use crate::format::write::Writer;

/// Number of sections of the input projection of a state-space model.
const SECTIONS: usize = 5;

impl HfConfig {
    /// Writes the multipliers of projections. In checkpoints that `mlx-lm` converted, weights have been multiplied by all
    /// of them except the one of keys, and that of the inputs of attention for values.
    pub(super) fn write_multipliers(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let Some(attention_in) = self.float("attention_in_multiplier")? else {
            return Ok(());
        };
        let number = |name: &str| Ok(self.float(name)?.unwrap_or(1.0));
        let key_multiplier = number("key_multiplier")?;
        let key = |name: &str| format!("{arch}.{}.{name}", arch::PROJECTION_SCALE);
        if self.is_converted {
            w.set(&key("attn_k"), key_multiplier);
            w.set(&key("attn_v"), attention_in);
            return Ok(());
        }
        let [gate, down] = self.numbers("mlp_multipliers")?;
        for (name, factor) in [
            ("attn_q", attention_in),
            ("attn_k", attention_in * key_multiplier),
            ("attn_v", attention_in),
            ("attn_output", number("attention_out_multiplier")?),
            ("ssm_out", number("ssm_out_multiplier")?),
            ("ffn_gate", gate),
            ("ffn_down", down),
        ] {
            w.set(&key(name), factor);
        }
        let input = number("ssm_in_multiplier")?;
        let sections: [f32; SECTIONS] = self.numbers("ssm_multipliers")?;
        let sections = sections.map(|factor| input * factor);
        w.list(&format!("{arch}.{}", arch::SSM_SCALES), &sections);
        let head = number("lm_head_multiplier")?;
        if head <= 0.0 {
            bail!(
                Format,
                "lm_head_multiplier: expected a positive number, got {head}"
            );
        }
        w.set(&format!("{arch}.logit_scale"), 1.0 / head);
        Ok(())
    }

    /// Returns whether weights have been multiplied by the multipliers.
    pub(super) fn has_folded_multipliers(&self) -> bool {
        self.is_converted && self.find("attention_in_multiplier").is_some()
    }

    /// Reads `N` numbers; ones if the key is absent.
    fn numbers<const N: usize>(&self, path: &str) -> Result<[f32; N]> {
        let Some(list) = self.floats(path)? else {
            return Ok([1.0; N]);
        };
        let count = list.len();
        match list.try_into() {
            Ok(numbers) => Ok(numbers),
            Err(_) => bail!(Format, "{path}: expected {N} numbers, got {count}"),
        }
    }
}
