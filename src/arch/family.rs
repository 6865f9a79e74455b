//! Description of an architecture.

use super::config::Config;
use super::layer_config::MixerRule;
use super::names::Names;
use super::parts::Layer;
use super::recurrent_config::RecurrentKind;
use crate::op::functions::Activation;
use crate::plan::builder::{Builder, Router, X};

/// Pairs of elements of a head that RoPE rotates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RopePairs {
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
pub(crate) struct HeadBlock {
    /// Emits the whole block: `x += ..`.
    pub(super) block: Part,
    /// Emits only the store of its keys and values.
    pub(super) store: Part,
}

/// An architecture: its properties and its recipe.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties")]
pub(crate) struct Arch {
    /// Value of `general.architecture`.
    pub name: &'static str,
    /// Values of `model_type` in `config.json`, or class names where those are more specific.
    pub model_types: &'static [&'static str],
    /// Classes of `transformers`, one per model type, if export is supported. Of two, the second is
    /// for models with sliding windows.
    pub classes: &'static [&'static str],
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
    /// Returns whether GGUF files store the rows of Q and K in another order than other files.
    pub(crate) fn permutes_heads(&self) -> bool {
        self.rope_pairs == RopePairs::Permuted
    }
}
