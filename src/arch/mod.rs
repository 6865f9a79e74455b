//! Model architectures: a recipe per architecture, and their registry.

mod bert;
mod bitnet;
mod config;
mod deepseek2;
mod defaults;
mod delta_net;
mod drafting;
mod drafting_rows;
mod eagle3;
mod expert_config;
mod experts;
mod falcon_h1;
mod family;
mod gemma2;
mod gemma3n;
mod gemma4;
mod gpt2;
mod gpt_oss;
mod granite_hybrid;
mod hf_defaults;
mod latent_config;
mod layer_config;
mod layers;
mod lfm2;
mod llama;
mod mamba2;
mod mtp;
mod names;
mod nemotron_h;
mod olmo2;
mod olmoe;
mod parts;
mod phimoe;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen35;
mod qwen3moe;
mod recurrent_config;
mod rope;
mod speech_encoder;
mod stack;
mod starcoder2;
mod validate;
mod whisper;

pub(crate) use config::{
    Config, Drafting, Eagle3, INTERLEAVED_HEADS, LAYER_EMBEDDING_ROWS, PROJECTION_SCALE,
};
pub(crate) use drafting::{draft as draft_recipe, keys as head_keys_recipe};
pub(crate) use eagle3::{EAGLE3, PREFIX as DRAFTER_PREFIX, TOKEN_INDEX};
pub(crate) use family::{Arch, RopePairs};
pub(crate) use hf_defaults::{ConfigRule, HfDefaults, hf_defaults};
pub(crate) use latent_config::{FUSED_KEYS_VALUES, Latent};
#[cfg(test)]
pub(crate) use layer_config::Mixer;
pub(crate) use layer_config::{LayerConfig, LayerKind, MixerRule};
pub(crate) use names::{CLASSIFIER, CLASSIFIER_DENSE, DENSE_MODULES, HEAD, PREFIXES};
pub(crate) use recurrent_config::{
    DeltaNet, FUSED_BY_KEY_HEAD, NORM_BEFORE_GATE, Recurrent, SSM_SCALES, TIME_STEP_LIMIT,
};
pub(crate) use rope::{RopeScaling, Rotation};
pub(crate) use speech_encoder::{SPEECH, SPEECH_CLASSES, SpeechEncoder, is_speech};
pub(crate) use whisper::{aligner as aligner_recipe, encoder as encoder_recipe};

use crate::error::{Result, bail};
use crate::op::functions::{Activation, ExpertScore};
use crate::plan::builder::Router;
use recurrent_config::RecurrentKind;

/// Router by the normalized softmax.
const NORMALIZED: Router = Router {
    normalize: true,
    ..Router::softmax(0)
};

/// Router by the normalized sigmoid.
const SIGMOID: Router = Router {
    score: ExpertScore::Sigmoid,
    normalize: true,
    eps: 1e-20,
    ..Router::softmax(0)
};

/// Defaults of [`ARCHS`] entries.
const DEFAULT: Arch = Arch {
    name: "",
    model_types: &[],
    classes: &[],
    rope_pairs: RopePairs::HalfSplit,
    recurrent: None,
    mixers: MixerRule::Listed,
    interleaved_heads: false,
    names: &names::LLAMA,
    aliases: &[],
    fused: &[],
    transposed: &[],
    norms_plus_one: false,
    encoder: false,
    dense_modules: false,
    activation: Activation::Silu,
    router: NORMALIZED,
    defaults: |_| {},
    ternary: false,
    mtp: None,
    recipe: llama::recipe,
};

/// Architectures with the gated delta rule of Qwen 3.5.
const QWEN35: Arch = Arch {
    recurrent: Some(RecurrentKind::DeltaNet),
    interleaved_heads: true,
    names: &names::QWEN35,
    norms_plus_one: true,
    defaults: qwen35::defaults,
    mtp: Some(qwen35::HEAD),
    recipe: qwen35::recipe,
    ..DEFAULT
};

const NEMOTRON_H: Arch = Arch {
    names: &names::NEMOTRON_H,
    recurrent: Some(RecurrentKind::Ssm),
    mixers: MixerRule::One,
    activation: Activation::Relu2,
    router: SIGMOID,
    defaults: nemotron_h::defaults,
    recipe: nemotron_h::recipe,
    ..DEFAULT
};

const LFM2: Arch = Arch {
    names: &names::LFM2,
    // The norm of the output, in spite of its name.
    aliases: &[("token_embd_norm.weight", "output_norm.weight")],
    recurrent: Some(RecurrentKind::ShortConv),
    mixers: MixerRule::WithoutHeads,
    recipe: lfm2::recipe,
    ..DEFAULT
};

/// Fused modules of several architectures.
const QKV: (&str, &[&str]) = ("attn_qkv", &["attn_q", "attn_k", "attn_v"]);
/// Internal name of a fused gate; GGUF files store it as `ffn_up`, without an `ffn_gate`.
const GATE_UP: (&str, &[&str]) = ("ffn_gate_up", &["ffn_gate", "ffn_up"]);

/// All architectures. GGUF files of some Llama-like architectures store Q and K permuted for RoPE on
/// adjacent pairs ([`RopePairs::Permuted`]).
pub(crate) const ARCHS: &[Arch] = &[
    Arch {
        name: "llama",
        model_types: &["llama", "mistral", "mixtral"],
        names: &names::MIXTRAL,
        classes: &["LlamaForCausalLM", "MistralForCausalLM"],
        rope_pairs: RopePairs::Permuted,
        ..DEFAULT
    },
    Arch {
        name: "mistral3",
        // Multimodal files, whose text model is of type `ministral3` or `mistral`, by default `mistral`.
        model_types: &["ministral3", "mistral3", "Mistral3ForConditionalGeneration"],
        rope_pairs: RopePairs::Permuted,
        ..DEFAULT
    },
    Arch {
        name: "smollm3",
        model_types: &["smollm3"],
        classes: &["SmolLM3ForCausalLM"],
        rope_pairs: RopePairs::Permuted,
        defaults: llama::smollm3,
        ..DEFAULT
    },
    Arch {
        name: "granite",
        model_types: &["granite"],
        classes: &["GraniteForCausalLM"],
        names: &names::GRANITE,
        rope_pairs: RopePairs::Permuted,
        defaults: granite_hybrid::defaults,
        ..DEFAULT
    },
    Arch {
        name: "granitemoe",
        model_types: &["granitemoe", "granitemoeshared"],
        names: &names::GRANITE,
        rope_pairs: RopePairs::Permuted,
        defaults: granite_hybrid::defaults,
        ..DEFAULT
    },
    Arch {
        name: "granitehybrid",
        model_types: &["granitemoehybrid"],
        names: &names::GRANITE,
        recurrent: Some(RecurrentKind::Ssm),
        mixers: MixerRule::WithoutHeads,
        defaults: granite_hybrid::defaults,
        recipe: granite_hybrid::recipe,
        ..DEFAULT
    },
    Arch {
        name: "nemotron_h",
        model_types: &["nemotron_h"],
        ..NEMOTRON_H
    },
    Arch {
        name: "nemotron_h_moe",
        ..NEMOTRON_H
    },
    Arch {
        name: "falcon-h1",
        model_types: &["falcon_h1"],
        names: &names::FALCON_H1,
        recurrent: Some(RecurrentKind::Ssm),
        mixers: MixerRule::Both,
        recipe: falcon_h1::recipe,
        ..DEFAULT
    },
    Arch {
        name: "deepseek2",
        model_types: &["deepseek_v2", "deepseek_v3", "glm4_moe_lite"],
        names: &names::DEEPSEEK,
        rope_pairs: RopePairs::Adjacent,
        router: Router {
            eps: 1e-20,
            ..Router::softmax(0)
        },
        mtp: Some(deepseek2::HEAD),
        recipe: deepseek2::recipe,
        ..DEFAULT
    },
    Arch {
        name: "lfm2",
        model_types: &["lfm2"],
        ..LFM2
    },
    Arch {
        name: "lfm2moe",
        model_types: &["lfm2_moe"],
        router: Router {
            eps: 1e-6,
            ..SIGMOID
        },
        ..LFM2
    },
    Arch {
        name: "phi3",
        model_types: &["phi3"],
        names: &names::PHI3,
        fused: &[QKV, GATE_UP],
        ..DEFAULT
    },
    Arch {
        name: "olmo2",
        model_types: &["olmo2"],
        classes: &["Olmo2ForCausalLM"],
        names: &names::OLMO2,
        defaults: olmo2::defaults,
        recipe: olmo2::recipe,
        ..DEFAULT
    },
    Arch {
        name: "olmoe",
        model_types: &["olmoe"],
        names: &names::QWEN_MOE,
        router: Router::softmax(0),
        recipe: olmoe::recipe,
        ..DEFAULT
    },
    Arch {
        name: "phimoe",
        model_types: &["phimoe"],
        names: &names::MIXTRAL,
        router: Router {
            score: ExpertScore::SparseMixer,
            eps: 0.02,
            ..Router::softmax(0)
        },
        defaults: phimoe::defaults,
        recipe: phimoe::recipe,
        ..DEFAULT
    },
    Arch {
        name: EAGLE3,
        classes: &[],
        names: &eagle3::NAMES,
        rope_pairs: RopePairs::Permuted,
        ..DEFAULT
    },
    Arch {
        name: "qwen2",
        model_types: &["qwen2"],
        classes: &["Qwen2ForCausalLM"],
        recipe: qwen2::recipe,
        ..DEFAULT
    },
    Arch {
        name: "qwen2moe",
        model_types: &["qwen2_moe"],
        names: &names::QWEN_MOE,
        router: Router::softmax(0),
        defaults: qwen2moe::defaults,
        recipe: qwen2moe::recipe,
        ..DEFAULT
    },
    Arch {
        name: "qwen3",
        model_types: &["qwen3"],
        classes: &["Qwen3ForCausalLM"],
        names: &names::QWEN3,
        recipe: qwen3::recipe,
        ..DEFAULT
    },
    Arch {
        name: "qwen3moe",
        model_types: &["qwen3_moe"],
        names: &names::QWEN_MOE,
        recipe: qwen3moe::recipe,
        ..DEFAULT
    },
    Arch {
        name: "qwen35",
        model_types: &["qwen3_5", "qwen3_5_text"],
        ..QWEN35
    },
    Arch {
        name: "qwen35moe",
        model_types: &["qwen3_5_moe", "qwen3_5_moe_text"],
        ..QWEN35
    },
    Arch {
        name: "qwen3next",
        model_types: &["qwen3_next"],
        interleaved_heads: false,
        ..QWEN35
    },
    Arch {
        name: "gpt-oss",
        model_types: &["gpt_oss"],
        names: &names::GPT_OSS,
        transposed: &["ffn_gate_up_exps", "ffn_down_exps"],
        defaults: gpt_oss::defaults,
        recipe: gpt_oss::recipe,
        ..DEFAULT
    },
    Arch {
        name: "gemma",
        model_types: &["gemma"],
        norms_plus_one: true,
        activation: Activation::GeluTanh,
        defaults: llama::gemma,
        ..DEFAULT
    },
    Arch {
        name: "gemma2",
        model_types: &["gemma2"],
        names: &names::GEMMA2,
        norms_plus_one: true,
        activation: Activation::GeluTanh,
        defaults: gemma2::defaults,
        recipe: gemma2::recipe,
        ..DEFAULT
    },
    Arch {
        name: "gemma3",
        model_types: &["gemma3_text", "gemma3"],
        names: &names::GEMMA2,
        norms_plus_one: true,
        activation: Activation::GeluTanh,
        defaults: gemma2::defaults3,
        recipe: gemma2::recipe3,
        ..DEFAULT
    },
    Arch {
        name: "gemma-embedding",
        model_types: &["gemma3_text"],
        names: &names::GEMMA2,
        norms_plus_one: true,
        encoder: true,
        dense_modules: true,
        activation: Activation::GeluTanh,
        defaults: gemma2::defaults_embedding,
        recipe: gemma2::embedding,
        ..DEFAULT
    },
    Arch {
        name: "gemma3n",
        model_types: &["gemma3n_text", "gemma3n"],
        names: &names::GEMMA3N,
        activation: Activation::GeluTanh,
        defaults: gemma3n::defaults,
        recipe: gemma3n::recipe,
        ..DEFAULT
    },
    Arch {
        name: "gemma4",
        model_types: &["gemma4_text", "gemma4"],
        names: &names::GEMMA4,
        activation: Activation::GeluTanh,
        defaults: gemma4::defaults,
        recipe: gemma4::recipe,
        ..DEFAULT
    },
    Arch {
        name: "bitnet-b1.58",
        model_types: &["bitnet", "BitNetForCausalLM", "BitnetForCausalLM"],
        names: &names::BITNET,
        activation: Activation::Relu2,
        recipe: bitnet::recipe,
        ternary: true,
        ..DEFAULT
    },
    Arch {
        name: "bitnet-25",
        names: &names::BITNET,
        activation: Activation::Relu2,
        recipe: bitnet::recipe,
        ternary: true,
        ..DEFAULT
    },
    Arch {
        name: "bitnet",
        names: &names::BITNET,
        recipe: bitnet::recipe,
        ternary: true,
        ..DEFAULT
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
        ..DEFAULT
    },
    Arch {
        name: "starcoder2",
        model_types: &["starcoder2"],
        names: &names::STARCODER2,
        activation: Activation::GeluTanh,
        recipe: starcoder2::recipe,
        ..DEFAULT
    },
    Arch {
        name: "bert",
        model_types: &["bert", "xlm-roberta", "roberta"],
        names: &names::BERT,
        encoder: true,
        activation: Activation::Gelu,
        defaults: bert::defaults,
        recipe: bert::recipe,
        ..DEFAULT
    },
    Arch {
        name: "nomic-bert",
        model_types: &["nomic_bert"],
        names: &names::NOMIC_BERT,
        fused: &[QKV],
        encoder: true,
        recipe: bert::nomic,
        ..DEFAULT
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
        ..DEFAULT
    },
    Arch {
        name: "whisper",
        model_types: &["whisper"],
        classes: &["WhisperForConditionalGeneration"],
        activation: Activation::Gelu,
        defaults: whisper::defaults,
        recipe: whisper::recipe,
        ..DEFAULT
    },
];

/// Returns the architecture name of a `model_type`, if supported: of a decoder if there is one.
pub(crate) fn of_model_type(name: &str) -> Option<&'static str> {
    let arch = ARCHS.iter().find(|a| a.model_types.contains(&name));
    arch.map(|a| a.name)
}

/// Returns the architecture name of the encoder of a `model_type`, if supported.
pub(crate) fn encoder_of_model_type(name: &str) -> Option<&'static str> {
    let mut archs = ARCHS.iter().filter(|a| a.encoder);
    let arch = archs.find(|a| a.model_types.contains(&name));
    arch.map(|a| a.name)
}

/// Returns the architecture name of a model of this type with these kinds of layers and number of experts. GGUF files
/// of some types have several names.
pub(crate) fn with_layers(name: &'static str, kinds: &[LayerKind], experts: u32) -> &'static str {
    let states = kinds.is_empty() || kinds.contains(&LayerKind::State);
    match (name, states, experts) {
        ("granitehybrid", false, 0) => "granite",
        ("granitehybrid", false, _) => "granitemoe",
        ("nemotron_h", _, 1..) => "nemotron_h_moe",
        _ => name,
    }
}

/// Returns the architecture name of a model with this activation function. GGUF files of BitNet have two names.
pub(crate) fn with_activation(name: &'static str, activation: Option<&str>) -> &'static str {
    match (name, activation) {
        ("bitnet-b1.58", Some("silu")) => "bitnet",
        _ => name,
    }
}

/// Returns the architecture with this name.
///
/// # Errors
///
/// `Unsupported`, with the supported names.
pub(crate) fn find(name: &str) -> Result<&'static Arch> {
    let Some(arch) = ARCHS.iter().find(|a| a.name == name) else {
        let supported: Vec<_> = ARCHS.iter().map(|a| a.name).collect();
        bail!(
            Unsupported,
            "unsupported architecture {name:?}; supported are {}",
            supported.join(", ")
        );
    };
    Ok(arch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_lists_every_architecture() {
        let page = include_str!("../../docs/models.md");
        for arch in ARCHS {
            // Class names are listed by their model type.
            let types = arch.model_types.iter().filter(|name| !name.contains("For"));
            for name in types.chain([&arch.name]) {
                assert!(
                    page.contains(&format!("`{name}`")),
                    "{name} is not in models.md"
                );
            }
        }
    }
}
