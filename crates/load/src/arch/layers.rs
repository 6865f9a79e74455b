//! Computes the hyperparameters of each layer.

use super::config::Config;
use super::layer_config::{LayerConfig, LayerValues, Mixer, MixerRule};
use crate::error::{Error, Result, bail};

impl LayerConfig {
    /// Returns all layers of a model whose hyperparameters are in range.
    pub(super) fn all(c: &Config) -> Result<Vec<Self>> {
        let mut layers: Vec<Self> = Vec::new();
        let own = c.layers.saturating_sub(c.attention.shared_kv);
        for layer in 0..c.layers {
            let mut config = Self::of(c, layer)?;
            if layer >= own {
                // The last layer of the same kind with its own KV cache.
                let kind = |l: &Self| (l.window > 0, l.kv_dim());
                let source = layers[..own as usize]
                    .iter()
                    .rposition(|l| kind(l) == kind(&config));
                let Some(source) = source.and_then(|i| u32::try_from(i).ok()) else {
                    bail!(
                        Format,
                        "{}.attention.shared_kv_layers: layer {layer} has no KV cache to share: none \
                         of the first {own} layers has the same window and width",
                        c.architecture
                    );
                };
                config.cache = source;
            }
            layers.push(config);
        }
        Ok(layers)
    }

    fn of(c: &Config, layer: u32) -> Result<Self> {
        let arch = &c.architecture;
        let key = |name: &str| format!("{arch}.{name}");
        let pattern = key("attention.sliding_window_pattern");
        let lists = &c.per_layer;
        let sliding = c.attention.window > 0 && lists.sliding.of(layer, &pattern)?;
        let has_rope = match &lists.rope_layers {
            None => true,
            Some(list) => list.get(layer as usize).copied().unwrap_or(true),
        };
        let rope = u32::from(sliding && c.rope.rotations.len() > 1);
        let mixer = Self::mixer(c, layer)?;
        if mixer.has_state() && c.recurrent.is_none() {
            bail!(
                Format,
                "layer {layer} is recurrent, but {arch}.ssm.time_step_rank or {arch}.shortconv.l_cache is missing \
                 or 0"
            );
        }
        // Values of absent parts may be 0, and are not used.
        let value = |values: &LayerValues, name: &str, used: bool| {
            let own = values.of(layer, &key(name))?;
            Ok::<_, Error>(if used { own } else { values.max() })
        };
        let attention = mixer.has_attention();
        let has_ffn = mixer == Mixer::None || lists.mixers != MixerRule::One;
        let config = Self {
            heads: value(&lists.heads, "attention.head_count", attention)?,
            kv_heads: value(&lists.kv_heads, "attention.head_count_kv", attention)?,
            head_dim: if sliding {
                lists.head_dim_swa
            } else {
                c.attention.head_dim
            },
            ffn: value(&lists.ffn, "feed_forward_length", has_ffn)?,
            experts: lists.experts.of(layer, arch)?,
            window: if sliding { c.attention.window } else { 0 },
            rope: has_rope.then_some(rope),
            cache: layer,
            mixer,
            latent: c.attention.latent.is_some(),
            skip: 0,
        };
        config.check(c, layer)?;
        Ok(config)
    }

    /// Returns how a layer mixes positions.
    fn mixer(c: &Config, layer: u32) -> Result<Mixer> {
        let key = |name: &str| format!("{}.{name}", c.architecture);
        let lists = &c.per_layer;
        let is_zero = |values: &LayerValues, name: &str| {
            let own = values.of(layer, &key(name))?;
            Ok::<_, Error>(own == 0)
        };
        let no_heads = || is_zero(&lists.kv_heads, "attention.head_count_kv");
        let recurrent = match lists.mixers {
            MixerRule::Listed => lists
                .recurrent
                .of(layer, &key("attention.recurrent_layers"))?,
            MixerRule::WithoutHeads => no_heads()?,
            MixerRule::One => {
                let no_ffn = is_zero(&lists.ffn, "feed_forward_length")?;
                return Ok(match (no_heads()?, no_ffn) {
                    (false, _) => Mixer::Attention,
                    (true, false) => Mixer::None,
                    (true, true) => Mixer::State,
                });
            }
            MixerRule::Both => return Ok(Mixer::Both),
        };
        Ok(match recurrent {
            true => Mixer::State,
            false => Mixer::Attention,
        })
    }

    /// Checks that the hyperparameters of a layer are consistent.
    fn check(&self, c: &Config, layer: u32) -> Result<()> {
        let Self {
            heads,
            kv_heads,
            head_dim,
            ffn,
            ..
        } = *self;
        let arch = &c.architecture;
        if [heads, kv_heads, head_dim, ffn].contains(&0) {
            bail!(
                Format,
                "{arch}.attention.head_count, head_count_kv, key_length, feed_forward_length: expected \
                 positive values in layer {layer}, got {heads}, {kv_heads}, {head_dim}, {ffn}"
            );
        }
        if !heads.is_multiple_of(kv_heads) {
            bail!(
                Format,
                "{arch}.attention.head_count_kv: expected a divisor of attention.head_count {heads}, \
                 got {kv_heads}"
            );
        }
        let suffix = if self.window > 0 && c.rope.rotations.len() > 1 {
            "_swa"
        } else {
            ""
        };
        let rope_dim = self.rope.map_or(0, |i| c.rope.rotations[i as usize].dim);
        if rope_dim > head_dim || !rope_dim.is_multiple_of(2) || !head_dim.is_multiple_of(2) {
            bail!(
                Format,
                "{arch}.rope.dimension_count{suffix}: expected even values, at most \
                 attention.key_length{suffix} {head_dim}, got {rope_dim}"
            );
        }
        Ok(())
    }
}
