//! Architectures: a recipe per family, and the registry that names them.

mod bert;
mod bitnet;
mod block;
mod checkpoints;
mod config;
mod defaults;
mod family;
mod gemma2;
mod gemma4;
mod gpt2;
mod layers;
mod llama;
mod names;
mod olmo2;
mod parts;
mod qwen2;
mod qwen3;
mod qwen3moe;
mod rope;
mod starcoder2;
mod validate;

pub use block::Block;
pub use checkpoints::{Checkpoint, Quirk, checkpoint};
pub use config::Config;
pub use family::Arch;
pub use names::{HEAD, Names, PREFIXES, Pairs};
pub use rope::{RopeScaling, Rotation};

use crate::error::{Result, bail};
use crate::op::builder::Activation;

/// What most families have: a row says what is different.
const PLAIN: Arch = Arch {
    name: "",
    model_types: &[],
    classes: &[],
    half_split: true,
    names: &names::LLAMA,
    fused: &[],
    transposed: &[],
    norms_plus_one: false,
    encoder: false,
    activation: Activation::Silu,
    defaults: |_| {},
    ternary: false,
    recipe: llama::recipe,
};

/// Fused modules that several families have.
const QKV: (&str, &[&str]) = ("attn_qkv", &["attn_q", "attn_k", "attn_v"]);
/// As Hugging Face's names map to it; GGUF files call it `ffn_up`, and have no `ffn_gate`.
const GATE_UP: (&str, &[&str]) = ("ffn_gate_up", &["ffn_gate", "ffn_up"]);
/// The same of each expert.
const GATE_UP_EXPERTS: (&str, &[&str]) = ("ffn_gate_up_exps", &["ffn_gate_exps", "ffn_up_exps"]);

/// Every family. GGUF files of the Llama family hold Q and K permuted for adjacent pairs.
pub const ARCHS: &[Arch] = &[
    Arch {
        name: "llama",
        model_types: &["llama", "mistral"],
        classes: &["LlamaForCausalLM", "MistralForCausalLM"],
        half_split: false,
        ..PLAIN
    },
    Arch {
        name: "smollm3",
        model_types: &["smollm3"],
        classes: &["SmolLM3ForCausalLM"],
        half_split: false,
        defaults: llama::smollm3,
        ..PLAIN
    },
    Arch {
        name: "granite",
        model_types: &["granite"],
        classes: &["GraniteForCausalLM"],
        half_split: false,
        ..PLAIN
    },
    Arch {
        name: "phi3",
        model_types: &["phi3"],
        names: &names::PHI3,
        fused: &[QKV, GATE_UP],
        ..PLAIN
    },
    Arch {
        name: "olmo2",
        model_types: &["olmo2"],
        classes: &["Olmo2ForCausalLM"],
        names: &names::OLMO2,
        defaults: olmo2::defaults,
        recipe: olmo2::recipe,
        ..PLAIN
    },
    Arch {
        name: "qwen2",
        model_types: &["qwen2"],
        classes: &["Qwen2ForCausalLM"],
        recipe: qwen2::recipe,
        ..PLAIN
    },
    Arch {
        name: "qwen3",
        model_types: &["qwen3"],
        classes: &["Qwen3ForCausalLM"],
        names: &names::QWEN3,
        recipe: qwen3::recipe,
        ..PLAIN
    },
    Arch {
        name: "qwen3moe",
        model_types: &["qwen3_moe"],
        names: &names::QWEN3_MOE,
        recipe: qwen3moe::recipe,
        fused: &[GATE_UP_EXPERTS],
        ..PLAIN
    },
    Arch {
        name: "gemma",
        model_types: &["gemma"],
        norms_plus_one: true,
        activation: Activation::GeluTanh,
        defaults: llama::gemma,
        ..PLAIN
    },
    Arch {
        name: "gemma2",
        model_types: &["gemma2"],
        names: &names::GEMMA2,
        norms_plus_one: true,
        activation: Activation::GeluTanh,
        defaults: gemma2::defaults,
        recipe: gemma2::recipe,
        ..PLAIN
    },
    Arch {
        name: "gemma3",
        model_types: &["gemma3_text", "gemma3"],
        names: &names::GEMMA2,
        norms_plus_one: true,
        activation: Activation::GeluTanh,
        defaults: gemma2::defaults3,
        recipe: gemma2::recipe3,
        ..PLAIN
    },
    Arch {
        name: "gemma4",
        model_types: &["gemma4_text", "gemma4"],
        names: &names::GEMMA4,
        activation: Activation::GeluTanh,
        defaults: gemma4::defaults,
        recipe: gemma4::recipe,
        ..PLAIN
    },
    Arch {
        name: "bitnet-b1.58",
        model_types: &["bitnet", "BitNetForCausalLM", "BitnetForCausalLM"],
        names: &names::BITNET,
        activation: Activation::Relu2,
        recipe: bitnet::recipe,
        ternary: true,
        ..PLAIN
    },
    Arch {
        name: "bitnet-25",
        names: &names::BITNET,
        activation: Activation::Relu2,
        recipe: bitnet::recipe,
        ternary: true,
        ..PLAIN
    },
    Arch {
        name: "bitnet",
        names: &names::BITNET,
        recipe: bitnet::recipe,
        ternary: true,
        ..PLAIN
    },
    Arch {
        name: "gpt2",
        model_types: &["gpt2"],
        names: &names::GPT2,
        fused: &[QKV],
        transposed: &["attn_qkv", "attn_output", "ffn_up", "ffn_down"],
        activation: Activation::GeluTanh,
        defaults: gpt2::defaults,
        recipe: gpt2::recipe,
        ..PLAIN
    },
    Arch {
        name: "starcoder2",
        model_types: &["starcoder2"],
        names: &names::STARCODER2,
        activation: Activation::GeluTanh,
        recipe: starcoder2::recipe,
        ..PLAIN
    },
    Arch {
        name: "bert",
        model_types: &["bert", "xlm-roberta", "roberta"],
        names: &names::BERT,
        encoder: true,
        activation: Activation::Gelu,
        defaults: bert::defaults,
        recipe: bert::recipe,
        ..PLAIN
    },
    Arch {
        name: "nomic-bert",
        model_types: &["nomic_bert"],
        names: &names::NOMIC_BERT,
        fused: &[QKV],
        encoder: true,
        recipe: bert::nomic,
        ..PLAIN
    },
    Arch {
        name: "modern-bert",
        model_types: &["modernbert"],
        names: &names::MODERN_BERT,
        fused: &[QKV, GATE_UP],
        encoder: true,
        activation: Activation::Gelu,
        defaults: bert::defaults_modern,
        recipe: bert::modern,
        ..PLAIN
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
