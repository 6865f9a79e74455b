//! Validates hyperparameters.

use super::config::{Config, LAYERS_MAX};
use super::family::Arch;
use super::latent_config::Latent;
use super::layer_config::{LayerConfig, LayerValues};
use super::recurrent_config::Recurrent;
use super::{speech_encoder, whisper};
use crate::error::{Result, bail};
use crate::op::functions::{EXPERT_GROUPS_MAX, EXPERTS_MAX};
use crate::plan::builder::Router;

/// Range of a hyperparameter.
struct Range {
    key: &'static str,
    value: fn(&Config) -> u32,
    min: u32,
    max: u32,
}

const fn range(key: &'static str, min: u32, max: u32, value: fn(&Config) -> u32) -> Range {
    Range {
        key,
        value,
        min,
        max,
    }
}

/// Maximum head dimension.
const HEAD_DIM_MAX: u32 = 4096;

/// Ranges of integers. Any product of three fits 64 bits.
const RANGES: &[Range] = &[
    range("block_count", 1, LAYERS_MAX, |c| c.layers),
    range("embedding_length", 1, 1 << 17, |c| c.dim),
    range("attention.head_count", 1, 4096, |c| c.attention.heads),
    range("attention.head_count_kv", 1, 4096, |c| c.attention.kv_heads),
    range("attention.key_length", 1, HEAD_DIM_MAX, |c| {
        c.attention.head_dim
    }),
    range("attention.key_length_swa", 1, HEAD_DIM_MAX, |c| {
        c.per_layer.head_dim_swa
    }),
    range("vocab_size", 1, 1 << 21, |c| c.vocab),
    range("context_length", 1, 1 << 27, |c| c.context),
    range("attention.sliding_window", 0, 1 << 27, |c| {
        c.attention.window
    }),
    range("attention.shared_kv_layers", 0, LAYERS_MAX, |c| {
        c.attention.shared_kv
    }),
    range("expert_count", 0, EXPERTS_MAX, |c| c.experts.count),
    // The total rows of all experts fit 32 bits.
    range("expert_feed_forward_length", 0, 1 << 19, |c| {
        c.experts.width
    }),
    range("moe_latent_size", 0, 1 << 17, |c| c.experts.latent),
    range("expert_shared_feed_forward_length", 0, 1 << 20, |c| {
        c.experts.shared_width
    }),
    range("feed_forward_length", 1, 1 << 20, |c| c.ffn.width),
    range("embedding_length_per_layer_input", 0, 1 << 14, |c| {
        c.layer_embeddings.width
    }),
    range("vocab_size_per_layer_input", 0, 1 << 21, |c| {
        c.layer_embeddings.rows
    }),
];

impl Config {
    /// Applies the defaults of the architecture, checks ranges and consistency, and computes the
    /// layers.
    ///
    /// # Errors
    ///
    /// `Format`, with the key, the value and the limit.
    pub fn validate(mut self, arch: &Arch) -> Result<Self> {
        if !self.per_layer.has_activation {
            self.ffn.activation = arch.activation;
        }
        if let Some(kind) = arch.recurrent {
            self.recurrent = self.per_layer.recurrent_keys.complete(kind, self.dim)?;
            self.per_layer.mixers = arch.mixers;
        }
        if let Some(Recurrent::DeltaNet(delta)) = &mut self.recurrent {
            let own = self.per_layer.interleaved_heads;
            delta.at.interleaved = own.unwrap_or(arch.interleaved_heads);
        }
        (arch.defaults)(&mut self);
        let name = match self.speech {
            Some(_) => speech_encoder::DECODER.to_string(),
            None => self.architecture.clone(),
        };
        for (key, value) in [
            ("embedding_length", self.dim),
            ("attention.head_count", self.attention.heads),
        ] {
            if value == 0 {
                bail!(Format, "{name}.{key} is missing or 0");
            }
        }
        match (arch.latent, self.attention.latent) {
            (true, None) => bail!(Format, "{name}.attention.kv_lora_rank is missing or 0"),
            (false, Some(Latent { rank, .. })) => bail!(
                Unsupported,
                "{name}.attention.kv_lora_rank: {rank}, but this architecture has no latent attention"
            ),
            _ => {}
        }
        if self.per_layer.kv_heads == LayerValues::All(0) {
            self.attention.kv_heads = self.attention.heads;
            self.per_layer.kv_heads = self.per_layer.heads.clone();
        }
        // Values of the file, then those that are derived from them.
        self.check_limits(&name)?;
        self.complete_experts(arch.router);
        self.check_limits(&name)?;
        if let Some(range) = RANGES.iter().find(|r| r.min > (r.value)(&self)) {
            bail!(Format, "{name}.{} is missing or 0", range.key);
        }
        self.check_numbers(&name)?;
        self.layer_configs = LayerConfig::all(&self)?;
        self.layer_configs.extend(whisper::cross_layers(&self));
        Ok(self)
    }

    fn check_limits(&self, arch: &str) -> Result<()> {
        for Range {
            key, value, max, ..
        } in RANGES
        {
            let n = value(self);
            if n > *max {
                bail!(Format, "{arch}.{key}: {n} is over the limit of {max}");
            }
        }
        Ok(())
    }

    fn check_numbers(&self, arch: &str) -> Result<()> {
        let eps = self.eps;
        if !(eps > 0.0 && eps < 1.0) {
            bail!(
                Format,
                "{arch}.attention.layer_norm_rms_epsilon or layer_norm_epsilon: expected a number \
                 between 0 and 1, got {eps}"
            );
        }
        for (rope, suffix) in self.rope.rotations.iter().zip(["", "_swa"]) {
            if rope.dim > HEAD_DIM_MAX {
                bail!(
                    Format,
                    "{arch}.rope.dimension_count{suffix}: {} is over the limit of {HEAD_DIM_MAX}",
                    rope.dim
                );
            }
            if !(rope.theta > 1.0 && rope.theta.is_finite()) {
                bail!(
                    Format,
                    "{arch}.rope.freq_base{suffix}: expected a finite number over 1, got {}",
                    rope.theta
                );
            }
            rope.scaling.check(arch)?;
        }
        for (key, value) in [
            ("embedding_scale", self.scales.embedding),
            ("residual_scale", self.scales.residual),
            ("logit_scale", self.output.logit_scale),
            ("attention.scale", self.attention.scale),
            (
                "attention.temperature_scale",
                self.attention.query_scale.map_or(0.0, |scale| scale.beta),
            ),
            ("attn_logit_softcapping", self.attention.cap),
            ("final_logit_softcapping", self.output.logit_cap),
        ] {
            let optional = key.starts_with("att") || key.starts_with("final");
            if !value.is_finite() || value < 0.0 || value == 0.0 && !optional {
                bail!(
                    Format,
                    "{arch}.{key}: expected a positive number, got {value}"
                );
            }
        }
        let [cutoffs, layers] = [self.ffn.sparsity.len(), self.layers as usize];
        if ![0, layers].contains(&cutoffs) {
            bail!(
                Format,
                "{arch}.activation_sparsity_scale: expected {layers} values, got {cutoffs}"
            );
        }
        if let Some(cutoff) = self
            .ffn
            .sparsity
            .iter()
            .find(|d| d.is_nan() || **d == f32::INFINITY)
        {
            bail!(
                Format,
                "{arch}.activation_sparsity_scale: expected numbers or negative infinity, got {cutoff}"
            );
        }
        self.check_router(arch)
    }

    /// Completes the hyperparameters of experts. `router` has the values that files do not contain.
    fn complete_experts(&mut self, router: Router) {
        if self.experts.count == 0 {
            self.experts.shared_width = 0;
            return;
        }
        let keys = &self.per_layer.experts;
        self.experts.router = keys.router(self.experts.router.k, router);
        if self.ffn.width == 0 {
            self.ffn.width = self.experts.width;
            self.per_layer.ffn = LayerValues::All(self.experts.width);
        }
        if self.experts.width == 0 {
            self.experts.width = self.ffn.width;
        }
        if self.experts.shared_width == 0 {
            self.experts.shared_width = keys.shared.saturating_mul(self.experts.width);
        }
    }

    /// Checks the router.
    fn check_router(&self, arch: &str) -> Result<()> {
        if self.experts.count == 0 {
            return Ok(());
        }
        let Router {
            k,
            eps,
            scale,
            groups,
            groups_used,
            group_best,
            ..
        } = self.experts.router;
        for (key, value) in [
            ("expert_weights_scale", scale),
            ("router_jitter_noise", eps),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                bail!(
                    Format,
                    "{arch}.{key}: expected a positive number, got {value}"
                );
            }
        }
        let size = self.experts.count / groups;
        if groups > EXPERT_GROUPS_MAX
            || !self.experts.count.is_multiple_of(groups)
            || size < group_best
        {
            bail!(
                Format,
                "{arch}.expert_group_count: expected at most {EXPERT_GROUPS_MAX} equal groups of at least \
                 {group_best} of {} experts, got {groups}",
                self.experts.count
            );
        }
        if !(1..=groups).contains(&groups_used) {
            bail!(
                Format,
                "{arch}.expert_group_used_count: expected 1 to {groups}, got {groups_used}"
            );
        }
        let selectable = size * groups_used;
        if !(1..=selectable).contains(&k) {
            bail!(
                Format,
                "{arch}.expert_used_count: expected 1 to {selectable}, got {k}"
            );
        }
        Ok(())
    }
}
