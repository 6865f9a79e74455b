//! Architectures: a recipe per family, and the registry that names them.

mod config;
mod llama;
mod parts;
mod qwen2;
mod qwen3;

pub use config::{Config, RopeScaling};

use crate::error::{Result, bail};
use crate::op::builder::Builder;

/// A family: its facts and its recipe.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each of its own")]
pub struct Arch {
    /// Its name in `general.architecture`.
    pub name: &'static str,
    /// Its names in `model_type` of a `config.json`.
    pub model_types: &'static [&'static str],
    /// Whether RoPE turns pairs `(i, i + rope_dim / 2)` rather than `(2 i, 2 i + 1)`.
    pub half_split: bool,
    /// Whether its matrices were trained as ternary digits, with activations in int8.
    pub ternary: bool,
    /// Emits the forward pass from tokens to logits.
    pub recipe: fn(&mut Builder<'_>, &Config),
}

/// Every family. GGUF files of the Llama family hold Q and K permuted for adjacent pairs.
pub const ARCHS: &[Arch] = &[
    Arch {
        name: "llama",
        model_types: &["llama", "mistral"],
        half_split: false,
        ternary: false,
        recipe: llama::recipe,
    },
    Arch {
        name: "qwen2",
        model_types: &["qwen2"],
        half_split: true,
        ternary: false,
        recipe: qwen2::recipe,
    },
    Arch {
        name: "qwen3",
        model_types: &["qwen3"],
        half_split: true,
        ternary: false,
        recipe: qwen3::recipe,
    },
];

/// The name in `general.architecture` of a `model_type`, where this build has its recipe.
pub fn of_model_type(name: &str) -> Option<&'static str> {
    let arch = ARCHS.iter().find(|a| a.model_types.contains(&name));
    arch.map(|a| a.name)
}

/// The family of this name.
///
/// # Errors
///
/// `Unsupported`, with the names that are known.
pub fn find(name: &str) -> Result<&'static Arch> {
    let Some(arch) = ARCHS.iter().find(|a| a.name == name) else {
        let known: Vec<_> = ARCHS.iter().map(|a| a.name).collect();
        bail!(
            Unsupported,
            "architecture {name:?} is not known; known are {}",
            known.join(", ")
        );
    };
    Ok(arch)
}
