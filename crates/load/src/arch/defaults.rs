//! Helpers to set architecture defaults that files do not contain.

use super::Config;
use super::layer_config::SlidingPattern;
use super::rope::{RopeScaling, Rotation};
use crate::op::functions::Activation;

impl Config {
    /// Scales embeddings by `sqrt(dim)`.
    pub(super) fn scale_embeddings(&mut self) {
        self.scales.embedding = (self.dim as f32).sqrt();
    }

    /// Replaces `gelu` by its tanh approximation.
    pub(super) fn use_gelu_tanh(&mut self) {
        if self.ffn.activation == Activation::Gelu {
            self.ffn.activation = Activation::GeluTanh;
        }
    }

    /// Sets the sliding-window pattern if the file has none.
    pub(super) fn default_sliding_pattern(&mut self, pattern: SlidingPattern) {
        match &mut self.per_layer.sliding {
            sliding @ SlidingPattern::All => *sliding = pattern,
            // A file gives the period, but not which layer of a period has full attention.
            SlidingPattern::Periodic { full_first, .. } => {
                *full_first = matches!(
                    pattern,
                    SlidingPattern::Periodic {
                        full_first: true,
                        ..
                    }
                );
            }
            SlidingPattern::List(_) => {}
        }
    }

    /// Sets the RoPE base of sliding-window layers if the file has none.
    pub(super) fn default_window_theta(&mut self, theta: f32) {
        if self.attention.window > 0 && self.rope.rotations.len() == 1 {
            self.rope.rotations.push(Rotation {
                dim: self.rope.rotations[0].dim,
                theta,
                scaling: RopeScaling::None,
            });
        }
    }

    /// Sets which layers apply RoPE if the file does not.
    pub(super) fn default_rope_layers(&mut self, has_rope: impl Fn(u32) -> bool) {
        // An invalid number of layers is rejected later.
        let layers = self.layers.min(super::config::LAYERS_MAX);
        self.per_layer
            .rope_layers
            .get_or_insert_with(|| (0..layers).map(has_rope).collect());
    }

    /// For the model size with this number of layers, sets the attention scale to
    /// `1 / sqrt(dim / heads)` if the file has none.
    pub(super) fn default_attention_scale_of(&mut self, layers: u32) {
        if self.layers == layers && self.attention.scale == 0.0 && self.attention.heads > 0 {
            self.attention.scale = 1.0 / ((self.dim / self.attention.heads) as f32).sqrt();
        }
    }
}
