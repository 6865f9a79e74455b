//! Maps the sizes of multi-head latent attention in `config.json` to GGUF keys.

use super::config::HfConfig;
use crate::error::{Result, bail};
use crate::format::write::Writer;

impl HfConfig {
    /// Returns whether the model has multi-head latent attention.
    pub(super) fn is_latent(&self) -> bool {
        self.find("kv_lora_rank").is_some()
    }

    /// Writes the sizes of multi-head latent attention.
    pub(super) fn write_latent(&self, arch: &str, w: &mut Writer<'_>) -> Result<()> {
        let names = [
            "kv_lora_rank",
            "qk_rope_head_dim",
            "qk_nope_head_dim",
            "v_head_dim",
        ];
        let mut sizes = [0; 4];
        for (name, size) in names.iter().zip(&mut sizes) {
            *size = match self.integer(name)? {
                Some(size @ 1..=65536) => size,
                other => bail!(
                    Format,
                    "{name}: expected 1 to 65536, got {}",
                    other.map_or("none".to_string(), |size| size.to_string())
                ),
            };
        }
        let [rank, rope, plain, value] = sizes;
        if let Some(rank) = self.integer("q_lora_rank")? {
            w.set(&format!("{arch}.attention.q_lora_rank"), rank);
        }
        for (key, value) in [
            ("attention.kv_lora_rank", rank),
            ("attention.head_count_kv", 1),
            ("attention.key_length", rank + rope),
            ("attention.value_length", rank),
            ("attention.key_length_mla", plain + rope),
            ("attention.value_length_mla", value),
            ("rope.dimension_count", rope),
        ] {
            w.set(&format!("{arch}.{key}"), value);
        }
        Ok(())
    }
}
