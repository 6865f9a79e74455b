//! Model architectures: a recipe per architecture, and their registry.

mod bert;
mod bitnet;
mod config;
mod config_keys;
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
mod granite;
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

pub use config::{AttentionConfig, Config, Drafting, Eagle3};
pub(crate) use config_keys::LAYER_EMBEDDING_ROWS;
pub use config_keys::{INTERLEAVED_HEADS, PROJECTION_SCALE};
pub(crate) use drafting::{draft as draft_recipe, keys as head_keys_recipe};
pub(crate) use eagle3::{EAGLE3, PREFIX as DRAFTER_PREFIX, TOKEN_INDEX};
pub use family::{Arch, ConfigRule, HfModel, RopePairs, Traits};
pub(crate) use latent_config::{FUSED_KEYS_VALUES, Latent};
#[cfg(test)]
pub(crate) use layer_config::Mixer;
pub use layer_config::{LayerConfig, LayerKind, MixerRule};
pub(crate) use names::{CLASSIFIER, CLASSIFIER_DENSE, DENSE_MODULES, HEAD, PREFIXES};
pub(crate) use recurrent_config::FUSED_BY_KEY_HEAD;
pub use recurrent_config::{DeltaNet, NORM_BEFORE_GATE, Recurrent, SSM_SCALES, TIME_STEP_LIMIT};
pub use rope::{RopeScaling, Rotation};
pub(crate) use speech_encoder::{SPEECH, SPEECH_CLASSES};
pub use speech_encoder::{SpeechEncoder, is_speech};
pub(crate) use whisper::{aligner as aligner_recipe, encoder as encoder_recipe};

use crate::error::{Result, bail};

/// All architectures. Of several with the same model type, the first one is a decoder.
pub(crate) const ARCHS: &[Arch] = &[
    llama::LLAMA,
    llama::MISTRAL3,
    llama::SMOLLM3,
    granite::GRANITE,
    granite::GRANITE_MOE,
    granite::GRANITE_HYBRID,
    nemotron_h::NEMOTRON_H,
    nemotron_h::NEMOTRON_H_MOE,
    falcon_h1::ARCH,
    deepseek2::ARCH,
    lfm2::LFM2,
    lfm2::LFM2_MOE,
    llama::PHI3,
    olmo2::ARCH,
    olmoe::ARCH,
    phimoe::ARCH,
    eagle3::ARCH,
    qwen2::ARCH,
    qwen2moe::ARCH,
    qwen3::ARCH,
    qwen3moe::ARCH,
    qwen35::QWEN35,
    qwen35::QWEN35_MOE,
    qwen35::QWEN3_NEXT,
    gpt_oss::ARCH,
    llama::GEMMA,
    gemma2::GEMMA2,
    gemma2::GEMMA3,
    gemma2::EMBEDDING_GEMMA,
    gemma3n::ARCH,
    gemma4::ARCH,
    bitnet::B1_58,
    bitnet::BITNET_25,
    bitnet::BITNET,
    gpt2::ARCH,
    starcoder2::ARCH,
    bert::BERT,
    bert::NOMIC_BERT,
    bert::MODERN_BERT,
    whisper::ARCH,
];

/// Returns the architecture of a `model_type`, if supported: a decoder if there is one.
pub(crate) fn of_model_type(name: &str) -> Option<&'static Arch> {
    ARCHS.iter().find(|arch| arch.has_model_type(name))
}

/// Returns the encoder of a `model_type`, if supported.
pub(crate) fn encoder_of_model_type(name: &str) -> Option<&'static Arch> {
    let mut archs = ARCHS.iter();
    archs.find(|arch| arch.encoder && arch.has_model_type(name))
}

/// Returns the defaults and rules of a `model_type`; of an unsupported one, there are none.
pub(crate) fn hf_model(model_type: &str) -> &'static HfModel {
    let mut all = ARCHS.iter().flat_map(|arch| arch.hf);
    all.find(|model| model.has_type(model_type))
        .unwrap_or(&HfModel::DEFAULT)
}

/// Returns the architecture with this name.
///
/// # Errors
///
/// `Unsupported`, with the supported names.
pub fn find(name: &str) -> Result<&'static Arch> {
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
        let page = include_str!("../../../../docs/models.md");
        for arch in ARCHS {
            // Class names are listed by their model type.
            let types = arch.hf.iter().flat_map(|model| model.types);
            let types = types.filter(|name| !name.contains("For"));
            for name in types.chain([&arch.name]) {
                assert!(
                    page.contains(&format!("`{name}`")),
                    "{name} is not in models.md"
                );
            }
        }
    }
}
