//! Hyperparameters of multi-head latent attention (MLA).

use crate::error::{Result, bail};
use crate::format::Metadata;

/// Multi-head latent attention: keys and values of all heads are products with one vector per position, and the part of
/// the keys with `RoPE` is the same for all heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// Width of the vector from which queries are computed (`q_lora_rank`); 0 means the residual stream.
    pub query_rank: u32,
    /// Width of the vector from which keys and values are computed (`kv_lora_rank`).
    pub rank: u32,
    /// Elements of a query or key without `RoPE` (`qk_nope_head_dim`).
    pub plain: u32,
    /// Elements of a query or key with `RoPE` (`qk_rope_head_dim`).
    pub rope: u32,
    /// Elements of a value (`v_head_dim`).
    pub value: u32,
}

/// Module that some files have instead of its parts: the matrices of keys and of values.
pub(crate) const FUSED_KEYS_VALUES: (&str, &[&str]) = ("attn_kv_b", &["attn_k_b", "attn_v_b"]);

/// Epsilon of the norms of the vectors from which queries, keys and values are computed, whatever files say: that of
/// `transformers`.
pub(super) const EPS: f32 = 1e-6;

/// `yarn_log_multiplier` in GGUF files of this architecture is `mscale_all_dim` times this.
const LOG_FACTOR: f32 = 0.1;

/// Maximum of the sizes.
const SIZE_MAX: u32 = 4096;

/// Keys of an architecture.
struct Keys<'a> {
    meta: &'a Metadata,
    arch: &'a str,
}

impl Keys<'_> {
    fn number(&self, name: &str) -> Result<u32> {
        let value = self.meta.u32(&format!("{}.{name}", self.arch))?;
        Ok(value.unwrap_or(0))
    }

    /// Checks the sizes of the cache, which files have in addition to those of heads.
    fn check_cache(&self, latent: &Latent) -> Result<()> {
        if self.number("attention.key_length_mla")? == 0 {
            return Ok(());
        }
        for (name, expected) in [("key", latent.width()), ("value", latent.rank)] {
            let name = format!("attention.{name}_length");
            let size = self.number(&name)?;
            if ![0, expected].contains(&size) {
                let (arch, Latent { rank, rope, .. }) = (self.arch, latent);
                bail!(
                    Format,
                    "{arch}.{name}: expected {expected} for {arch}.attention.kv_lora_rank {rank} and \
                     {arch}.rope.dimension_count {rope}, got {size}"
                );
            }
        }
        Ok(())
    }
}

impl Latent {
    /// Reads the keys of an architecture; `None` without a `kv_lora_rank`.
    ///
    /// # Errors
    ///
    /// `Format` for a value out of range.
    pub(super) fn read(meta: &Metadata, arch: &str) -> Result<Option<Self>> {
        let keys = Keys { meta, arch };
        let rank = keys.number("attention.kv_lora_rank")?;
        if rank == 0 {
            return Ok(None);
        }
        let rope = keys.number("rope.dimension_count")?;
        // Early files have the sizes of whole heads here, later ones those of the cache.
        let size = |name: &str| match keys.number(&format!("attention.{name}_length_mla"))? {
            0 => keys.number(&format!("attention.{name}_length")),
            n => Ok(n),
        };
        let (key, value) = (size("key")?, size("value")?);
        for (name, size) in [
            ("attention.kv_lora_rank", rank),
            ("rope.dimension_count", rope),
            ("attention.key_length_mla", key),
            ("attention.value_length_mla", value),
        ] {
            if !(1..=SIZE_MAX).contains(&size) {
                bail!(
                    Format,
                    "{arch}.{name}: expected 1 to {SIZE_MAX}, got {size}"
                );
            }
        }
        if rope >= key {
            bail!(
                Format,
                "{arch}.rope.dimension_count: expected less than the {key} elements of a key, got {rope}"
            );
        }
        let latent = Self {
            query_rank: keys.number("attention.q_lora_rank")?,
            rank,
            plain: key - rope,
            rope,
            value,
        };
        keys.check_cache(&latent)?;
        Ok(Some(latent))
    }

    /// Returns the width of a row of the cache.
    pub(crate) fn width(&self) -> u32 {
        self.rope + self.rank
    }

    /// Returns the factor of scores.
    ///
    /// # Errors
    ///
    /// `Format` for a value of the wrong type.
    pub(super) fn scale(&self, meta: &Metadata, arch: &str) -> Result<f32> {
        let key = |name: &str| format!("{arch}.rope.scaling.{name}");
        let plain = ((self.plain + self.rope) as f32).sqrt().recip();
        let factor = meta.f32(&key("factor"))?.unwrap_or(1.0);
        if meta.str(&key("type"))? != Some("yarn") || factor <= 1.0 {
            return Ok(plain);
        }
        let slope = match meta.f32(&key("mscale_all_dim"))? {
            Some(all) => LOG_FACTOR * all,
            None => meta.f32(&key("yarn_log_multiplier"))?.unwrap_or(0.0),
        };
        let magnitude = slope * factor.ln() + 1.0;
        Ok(plain * magnitude * magnitude)
    }
}
