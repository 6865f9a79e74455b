//! Hyperparameters of a model.

use super::expert_config::{ExpertKeys, group_best};
use super::latent_config::Latent;
use super::layer_config::{LayerConfig, LayerValues, MixerRule, RecurrentPattern, SlidingPattern};
use super::names::DENSE_MODULES;
use super::recurrent_config::{Recurrent, RecurrentKeys};
use super::rope::Rotation;
use super::speech_encoder::SpeechEncoder;
use crate::op::functions::{Activation, ExpertScore};
use crate::plan::builder::{GluClamp, PositionScale, Router};

/// Hyperparameters of a model. Must be validated by [`Config::validate`] before use.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub architecture: String,
    /// Number of layers.
    pub layers: u32,
    /// Number of blocks after the layers that predict later tokens.
    pub predict_layers: u32,
    /// Drafting head that was loaded.
    pub drafting: Option<Drafting>,
    /// Width of the residual stream.
    pub dim: u32,
    /// Vocabulary size.
    pub vocab: u32,
    /// Trained context length.
    pub context: u32,
    /// Epsilon of norms, added to the mean square or the variance.
    pub eps: f32,
    /// Whether every projection must have a bias; otherwise biases are optional.
    pub biased: bool,
    /// Attention.
    pub attention: AttentionConfig,
    /// Rotary position embedding.
    pub rope: RopeConfig,
    /// Feed-forward layers without experts.
    pub ffn: FeedForwardConfig,
    /// Mixtures of experts.
    pub experts: ExpertConfig,
    /// Factors of activations.
    pub scales: ScaleConfig,
    /// What follows the layers.
    pub output: OutputConfig,
    /// Dense modules of sentence-transformers.
    pub dense: DenseConfig,
    /// Per-layer embeddings.
    pub layer_embeddings: LayerEmbeddingConfig,
    /// Layers with a recurrent state; `None` if there are none.
    pub recurrent: Option<Recurrent>,
    /// Encoder of a speech model.
    pub speech: Option<SpeechEncoder>,
    /// Hyperparameters of each layer; empty before validation.
    pub layer_configs: Vec<LayerConfig>,
    /// Values of the file from which [`Self::layer_configs`] are computed.
    pub(super) per_layer: PerLayer,
}

/// Hyperparameters of attention.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Query heads; maximum over the layers.
    pub heads: u32,
    /// Key and value heads; maximum over the layers.
    pub kv_heads: u32,
    /// Head dimension; [`LayerConfig::head_dim`] may differ in sliding-window layers.
    pub head_dim: u32,
    /// Multi-head latent attention; `None`: keys and values have heads of their own.
    pub latent: Option<Latent>,
    /// Sliding window size in positions; 0 means no sliding-window layers.
    pub window: u32,
    /// Number of layers, at the end, that share the KV cache of earlier layers.
    pub shared_kv: u32,
    /// Factor of scores; 0 means `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Factor of queries after RoPE that grows with the position; `None`: there is none.
    pub query_scale: Option<PositionScale>,
    /// Softcap of scores; 0 means none.
    pub cap: f32,
}

/// Hyperparameters of RoPE.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Rotation of full-attention layers, and of sliding-window layers if it differs.
    pub rotations: Vec<Rotation>,
    /// Whether pairs are `(i, i + dim / 2)` rather than `(2 i, 2 i + 1)`.
    pub half_split: bool,
}

/// Hyperparameters of feed-forward layers.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedForwardConfig {
    /// Number of hidden units; maximum over the layers.
    pub width: u32,
    /// Activation, also of experts.
    pub activation: Activation,
    /// Whether neither feed-forward layers nor experts have a gate.
    pub ungated: bool,
    /// For each layer, the cutoff of the gate in standard deviations over the mean; negative infinity, or no
    /// value, means none.
    pub sparsity: Vec<f32>,
}

/// Hyperparameters of mixtures of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertConfig {
    /// Number of experts; maximum over the layers; 0 means a dense model.
    pub count: u32,
    /// Number of hidden units of an expert.
    pub width: u32,
    /// Width of the input and output of experts if they differ from that of the residual stream; 0: they do not.
    pub latent: u32,
    /// Rule by which the experts of a token are selected.
    pub router: Router,
    /// Clamp of the gated linear unit; `None`: it is a product with the activation of the gate.
    pub glu_clamp: Option<GluClamp>,
    /// Number of hidden units of all shared experts of a layer together; 0 means none.
    pub shared_width: u32,
    /// Whether the output of shared experts is multiplied by a gate.
    pub shared_gate: bool,
}

/// Factors of activations.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleConfig {
    /// Factor of embeddings.
    pub embedding: f32,
    /// Factor of the outputs of attention and feed-forward layer.
    pub residual: f32,
    /// Factors of the outputs of projections, by name; 1 for others.
    pub projections: Vec<(&'static str, f32)>,
}

/// Hyperparameters of what follows the layers: logits, or a classification head.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputConfig {
    /// Divisor of logits.
    pub logit_scale: f32,
    /// Softcap of logits; 0 means none.
    pub logit_cap: f32,
    /// Whether a classification head without a pooler reads the mean of the rows of a text rather than
    /// the first row.
    pub classifier_mean: bool,
}

/// Hyperparameters of the Dense modules of embedding models.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseConfig {
    /// Number of outputs of each of [`DENSE_MODULES`], if the file has it.
    pub features: [Option<u32>; DENSE_MODULES.len()],
    /// Whether they are computed after pooling, and not by the embedding table.
    pub after_pooling: bool,
}

/// Hyperparameters of per-layer embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerEmbeddingConfig {
    /// Number of elements per layer; 0 means none.
    pub width: u32,
    /// Number of rows; 0 means the vocabulary size.
    pub rows: u32,
}

/// Drafting head of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Drafting {
    /// A block of the model after its layers.
    Mtp(LayerConfig),
    /// A layer with its own hyperparameters.
    Eagle3(Box<Eagle3>),
}

/// Drafting head of EAGLE-3 and its hyperparameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Eagle3 {
    /// Hyperparameters of its files.
    pub(super) config: Config,
    pub(super) layer: LayerConfig,
    /// Layers of the model before which the head reads the residual stream, ascending.
    pub(super) taps: Vec<u32>,
    /// Whether the residual stream begins with the normalized features.
    pub(super) norms_residual: bool,
}

/// Values of a file from which the layer hyperparameters are computed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PerLayer {
    pub(super) heads: LayerValues,
    pub(super) kv_heads: LayerValues,
    pub(super) ffn: LayerValues,
    pub(super) experts: ExpertKeys,
    /// Head dimension of sliding-window layers.
    pub(super) head_dim_swa: u32,
    pub(super) sliding: SlidingPattern,
    /// Whether each layer applies RoPE; `None` means all do.
    pub(super) rope_layers: Option<Vec<bool>>,
    /// How the file says which layers have a recurrent state.
    pub(super) mixers: MixerRule,
    /// Layers with a recurrent state.
    pub(super) recurrent: RecurrentPattern,
    pub(super) recurrent_keys: RecurrentKeys,
    /// `rope.scaling.finetuned`.
    pub(super) rope_finetuned: Option<bool>,
    /// Whether the value heads of recurrent layers are interleaved; `None`: as in GGUF files.
    pub(super) interleaved_heads: Option<bool>,
    /// Whether the file sets the activation.
    pub(super) has_activation: bool,
}

/// Maximum number of layers.
pub(super) const LAYERS_MAX: u32 = 4096;

impl Config {
    /// Returns the factor of the output of a projection.
    pub fn projection_scale(&self, name: &str) -> f32 {
        let mut scales = self.scales.projections.iter();
        scales
            .find(|(known, _)| *known == name)
            .map_or(1.0, |(_, scale)| *scale)
    }

    /// Completes the router of a model with biases for the selection of experts: its function is the sigmoid if the file
    /// does not name it, because some files of models with a sigmoid lack the key.
    pub fn complete_biased_router(&mut self) {
        let gating = self.per_layer.experts.has_gating();
        if !gating && self.experts.router.score == ExpertScore::Softmax {
            self.experts.router.score = ExpertScore::Sigmoid;
            if self.experts.router.groups > 1 {
                self.experts.router.group_best = group_best(self.experts.router.score);
            }
        }
    }

    /// Returns the width of all query heads; maximum over the layers.
    pub(crate) fn q_dim(&self) -> u32 {
        let dims = self.layer_configs.iter().map(LayerConfig::q_dim);
        dims.max().unwrap_or(0)
    }
}
