//! A family of models.

use super::config::Config;
use super::names::Names;
use crate::op::builder::{Activation, Builder};

/// A family: its facts and its recipe.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each of its own")]
pub struct Arch {
    /// Its name in `general.architecture`.
    pub name: &'static str,
    /// Its names in `model_type` of a `config.json`, or of its class where that says more.
    pub model_types: &'static [&'static str],
    /// What `transformers` calls models of each of these types, where they can be written for it;
    /// of two types the second has windows.
    pub classes: &'static [&'static str],
    /// Whether RoPE turns pairs `(i, i + rope_dim / 2)` rather than `(2 i, 2 i + 1)`.
    pub half_split: bool,
    /// What Hugging Face calls its tensors.
    pub names: &'static Names,
    /// Modules that files hold as one, and what its rows are, in their order: both by GGUF's
    /// names.
    pub fused: &'static [(&'static str, &'static [&'static str])],
    /// Modules that Hugging Face holds as `[in, out]` (its `Conv1D`).
    pub transposed: &'static [&'static str],
    /// Whether Hugging Face's norms are what is to be added to one.
    pub norms_plus_one: bool,
    /// Whether it reads whole texts, both ways, and yields embeddings and no logits.
    pub encoder: bool,
    /// What the feed-forward layer applies where a file does not say.
    pub activation: Activation,
    /// Sets what else files of the family leave unsaid.
    pub defaults: fn(&mut Config),
    /// Whether its matrices were trained as ternary digits, with activations in int8.
    pub ternary: bool,
    /// Emits the forward pass from tokens to logits, or to rows of embeddings.
    pub recipe: fn(&mut Builder<'_>, &Config),
}
