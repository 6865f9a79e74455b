//! What files of a family leave unsaid: the words in which families say it.

use super::Config;
use super::block::Slides;
use super::rope::{RopeScaling, Rotation};
use crate::op::builder::Activation;

impl Config {
    /// Embeddings are multiplied by the root of their width.
    pub(super) fn scale_embeddings(&mut self) {
        self.embedding_scale = (self.dim as f32).sqrt();
    }

    /// `gelu` means the one by tanh.
    pub(super) fn gelu_by_tanh(&mut self) {
        if self.activation == Activation::Gelu {
            self.activation = Activation::GeluTanh;
        }
    }

    /// Which layers have a window, where the file only says how long it is.
    pub(super) fn slide_unless_said(&mut self, slides: Slides) {
        match &mut self.lists.slides {
            said @ Slides::All => *said = slides,
            // A number says how often a layer sees all, and not which one.
            Slides::But { first, .. } => {
                *first = matches!(slides, Slides::But { first: true, .. });
            }
            Slides::List(_) => {}
        }
    }

    /// The base of the layers with a window, where the file says none.
    pub(super) fn rotate_windows_by(&mut self, theta: f32) {
        if self.window > 0 && self.ropes.len() == 1 {
            self.ropes.push(Rotation {
                dim: self.ropes[0].dim,
                theta,
                scaling: RopeScaling::None,
            });
        }
    }

    /// Only these layers turn by position, unless the file says which.
    pub(super) fn turn_layers(&mut self, turned: impl Fn(u32) -> bool) {
        // What is no number of layers is refused later.
        let layers = self.layers.min(super::config::LAYERS_MAX);
        self.lists
            .turned
            .get_or_insert_with(|| (0..layers).map(turned).collect());
    }

    /// The model of so many layers scales scores by the width of its heads' share of the
    /// stream; its files do not say so.
    pub(super) fn scale_attention_of(&mut self, layers: u32) {
        if self.layers == layers && self.attention_scale == 0.0 && self.heads > 0 {
            self.attention_scale = 1.0 / ((self.dim / self.heads) as f32).sqrt();
        }
    }
}
