//! Description of an architecture: the fields of its row in the registry, and their defaults.

use super::config::Config;
use super::layer_config::{LayerKind, MixerRule};
use super::names::{self, Names};
use super::parts::Layer;
use super::recurrent_config::RecurrentKind;
use crate::op::functions::{Activation, ExpertScore};
use crate::plan::builder::{Builder, Router, X};

/// Pairs of elements of a head that RoPE rotates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// `(i, i + rope_dim / 2)` in all files.
    HalfSplit,
    /// `(i, i + rope_dim / 2)`, but `(2 i, 2 i + 1)` in GGUF files, in which the rows of Q and K are permuted.
    Permuted,
    /// `(2 i, 2 i + 1)` in all files.
    Adjacent,
}

/// Emits a part of the block.
type Part = fn(&mut Builder<'_>, &Config, Layer, X);

/// The block of a head for multi-token prediction, which is one of the architecture.
#[derive(Clone, Copy, Debug)]
pub struct HeadBlock {
    /// Emits the whole block: `x += ..`.
    pub(super) block: Part,
    /// Emits only the store of its keys and values.
    pub(super) store: Part,
}

/// An architecture: its properties and its recipe.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties")]
pub struct Arch {
    /// Value of `general.architecture`.
    pub name: &'static str,
    /// Model types of Hugging Face.
    pub hf: &'static [HfModel],
    /// Returns the architecture name in GGUF files of some models of these types, if it is another one.
    pub variant: fn(&Traits<'_>) -> Option<&'static str>,
    /// Pairs of elements that RoPE rotates.
    pub rope_pairs: RopePairs,
    /// Kind of its layers with a recurrent state; `None` if it has none.
    pub recurrent: Option<RecurrentKind>,
    /// How files say which layers have a recurrent state.
    pub mixers: MixerRule,
    /// Whether value head `h` of recurrent layers uses key head `h mod key_heads` in GGUF files, rather than
    /// `h key_heads / heads` as in other files.
    pub interleaved_heads: bool,
    /// Tensor names of Hugging Face.
    pub names: &'static Names,
    /// Names of tensors in GGUF files that differ from those in recipes, and these.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Fused modules and their parts in row order, by GGUF names.
    pub fused: &'static [(&'static str, &'static [&'static str])],
    /// Modules that Hugging Face stores as `[in, out]`: `Conv1D`, and stacked experts without a suffix.
    pub transposed: &'static [&'static str],
    /// Whether Hugging Face stores norm weights minus one.
    pub norms_plus_one: bool,
    /// Whether it has latent attention.
    pub latent: bool,
    /// Whether it is an encoder: bidirectional attention over whole texts, embeddings, no logits.
    pub encoder: bool,
    /// Whether its models have Dense modules of sentence-transformers, which GGUF files often lack.
    pub dense_modules: bool,
    /// Activation of the feed-forward layer if the file does not set it.
    pub activation: Activation,
    /// Router of experts, with the values that files do not contain.
    pub router: Router,
    /// Sets other values that files do not contain.
    pub defaults: fn(&mut Config),
    /// Whether it was trained with ternary weights and int8 activations.
    pub ternary: bool,
    /// Block of heads for multi-token prediction; `None` if they are not supported.
    pub mtp: Option<HeadBlock>,
    /// Emits the forward pass from tokens to logits, or to embeddings.
    pub recipe: fn(&mut Builder<'_>, &Config),
}

impl Arch {
    /// Returns whether `model_type`, which may be a class name, is one of this architecture.
    pub(super) fn has_model_type(&self, model_type: &str) -> bool {
        self.hf.iter().any(|model| model.has_type(model_type))
    }

    /// Returns the model types that can be exported.
    pub fn exported(&self) -> impl Iterator<Item = &'static HfModel> + use<> {
        self.hf.iter().filter(|model| model.class.is_some())
    }

    /// Returns the architecture name in GGUF files of a model with these properties.
    pub(crate) fn name_of(&self, traits: &Traits<'_>) -> &'static str {
        (self.variant)(traits).unwrap_or(self.name)
    }

    /// Returns whether GGUF files store the rows of Q and K in another order than other files.
    pub fn permutes_heads(&self) -> bool {
        self.rope_pairs == RopePairs::Permuted
    }
}

/// Model types of Hugging Face with the same configuration class.
#[derive(Debug)]
pub struct HfModel {
    /// Values of `model_type` in `config.json`, or class names where those are more specific.
    pub types: &'static [&'static str],
    /// Class of `transformers` for export; `None`: export is not supported. Of two classes of an architecture,
    /// the second is for models with sliding windows.
    pub class: Option<&'static str>,
    /// Values of absent keys in `transformers` 5 that files rely on, as JSON in the format of `config.json`. For
    /// multimodal models all are listed, because nested configurations contain only differences.
    pub json: &'static str,
    /// Special rule for reading the configuration.
    pub rule: Option<ConfigRule>,
}

impl HfModel {
    /// Values of fields that a row does not set, and of unsupported model types.
    pub(super) const DEFAULT: Self = Self {
        types: &[],
        class: None,
        json: "{}",
        rule: None,
    };

    /// Returns whether `name` is one of the types.
    pub(super) fn has_type(&self, name: &str) -> bool {
        self.types.contains(&name)
    }
}

/// Special rule for reading a `config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigRule {
    /// Position 0 is the row after the one with the index of the padding token.
    PositionsAfterPadding,
    /// `partial_rotary_factor` applies. Without this rule it is ignored and whole heads are rotated.
    PartialRotary,
    /// There is RoPE only if `position_embedding_type` is `rope`.
    OptionalRope,
    /// `norm_eps` is the epsilon of RMS norms.
    RmsNormEps,
}

/// Properties in a `config.json` that select the name of its architecture in GGUF files.
#[derive(Debug)]
pub struct Traits<'a> {
    /// Activation of the feed-forward layer.
    pub activation: Option<&'a str>,
    /// Kinds of all layers; empty if the file does not list them.
    pub layers: &'a [LayerKind],
    /// Number of experts.
    pub experts: u32,
}

impl Traits<'_> {
    /// Returns whether a layer may have a recurrent state.
    pub(super) fn has_states(&self) -> bool {
        self.layers.is_empty() || self.layers.contains(&LayerKind::State)
    }
}

/// Router by the normalized softmax.
const NORMALIZED: Router = Router {
    normalize: true,
    ..Router::softmax(0)
};

/// Router by the normalized sigmoid.
pub(super) const SIGMOID: Router = Router {
    score: ExpertScore::Sigmoid,
    eps: 1e-20,
    ..NORMALIZED
};

/// Fused modules of several architectures.
pub(super) const QKV: (&str, &[&str]) = ("attn_qkv", &["attn_q", "attn_k", "attn_v"]);
/// Internal name of a fused gate; GGUF files store it as `ffn_up`, without an `ffn_gate`.
pub(super) const GATE_UP: (&str, &[&str]) = ("ffn_gate_up", &["ffn_gate", "ffn_up"]);

/// Values of fields that the row of an architecture does not set.
pub(super) const DEFAULT: Arch = Arch {
    name: "",
    hf: &[],
    variant: |_| None,
    rope_pairs: RopePairs::HalfSplit,
    recurrent: None,
    mixers: MixerRule::Listed,
    interleaved_heads: false,
    names: &names::LLAMA,
    aliases: &[],
    fused: &[],
    transposed: &[],
    norms_plus_one: false,
    latent: false,
    encoder: false,
    dense_modules: false,
    activation: Activation::Silu,
    router: NORMALIZED,
    defaults: |_| {},
    ternary: false,
    mtp: None,
    recipe: |_, _| unreachable!("the architecture of a model has a recipe"),
};
