//! Maps tensor names between Hugging Face (and MLX) and GGUF.

use crate::arch::{Arch, CLASSIFIER_DENSE, DENSE_MODULES, FUSED_BY_KEY_HEAD, HEAD, PREFIXES};
use crate::format::TensorInfo;

/// Tensors that repeat the configuration, or belong to vision and audio encoders.
const IGNORED: &[&str] = &[
    "rotary_emb.inv_freq",
    "vision_tower.",
    "vision_model.",
    "vision_embedder.",
    "embed_vision.",
    "multi_modal_projector.",
    "audio_tower.",
    "visual.",
    "embed_audio.",
];

/// Parameters that are not part of a module and have no suffix such as `.weight`. Others are those whose
/// GGUF name is that of a whole tensor.
const BARE: &[&str] = &[
    "layer_scalar",
    "self_attn.sinks",
    "altup.correct_output_scale",
];

/// GGUF tensors without a suffix such as `.weight`.
const COMPLETE: &[&str] = &["ssm_a", "ssm_d"];

/// Suffixes of GGUF names that are those of whole tensors.
const WHOLE: [&str; 2] = [".bias", ".scale"];

/// End of the names of projections, to which stacked experts of gpt-oss append these without a dot: codes, scales
/// and biases.
const PROJECTION: &str = "_proj";
pub(super) const CODES: &str = "_blocks";
pub(super) const SCALES: &str = "_scales";
pub(super) const BIAS: &str = "_bias";

/// Splits the name of a projection and one of these endings.
pub(super) fn split_ending(tensor: &str) -> Option<(&str, &'static str)> {
    let mut all = [CODES, SCALES, BIAS].into_iter();
    all.find_map(|ending| {
        let module = tensor.strip_suffix(ending)?;
        module.ends_with(PROJECTION).then_some((module, ending))
    })
}

/// Name parts before the index of an expert or of another matrix that GGUF files stack.
const STACKED: [&str; 3] = ["experts", "altup_projections", "altup_unembed_projections"];

const BLOCKS: &str = "blk.";

/// GGUF name of a module.
#[derive(Debug, PartialEq)]
pub(crate) struct GgufModule {
    /// Name, such as `blk.3.ffn_up`.
    pub(crate) name: String,
    /// Index of the expert or of another stacked matrix, if they are separate tensors.
    pub(crate) expert: Option<u32>,
    /// Prefix of the original name.
    prefix: &'static str,
}

impl GgufModule {
    /// Returns the GGUF name of a tensor of the module. Some modules are a single tensor, whose name has
    /// another suffix, such as `blk.3.ffn_gate_inp.scale`.
    pub(super) fn tensor(&self, suffix: &str) -> String {
        let mut parts = self.name.splitn(3, '.');
        match parts.nth(2) {
            Some(module) if is_whole(module) => self.name.clone(),
            _ => format!("{}.{suffix}", self.name),
        }
    }
}

/// Returns whether a GGUF name is that of a whole tensor.
fn is_whole(name: &str) -> bool {
    COMPLETE.contains(&name) || WHOLE.iter().any(|suffix| name.ends_with(suffix))
}

/// Returns the GGUF name of a module: `model.layers.3.mlp.up_proj` becomes `blk.3.ffn_up`.
pub(crate) fn to_gguf(arch: &Arch, module: &str) -> Option<GgufModule> {
    let names = arch.names;
    PREFIXES.iter().find_map(|prefix| {
        let name = module.strip_prefix(prefix)?;
        let (whole, expert) = split_expert(name);
        let mut outer = names.outer.iter().chain(DENSE_MODULES);
        if let Some((_, gguf)) = outer.find(|(hf, _)| *hf == whole) {
            return Some(GgufModule {
                name: (*gguf).to_string(),
                expert,
                prefix,
            });
        }
        let (layer, name) = split_layer(name.strip_prefix(names.layers)?)?;
        let (name, expert) = split_expert(name);
        let mut pairs = names.layer.iter().copied().flatten();
        let (_, gguf) = pairs.find(|(hf, _)| *hf == name)?;
        Some(GgufModule {
            name: format!("{BLOCKS}{layer}.{gguf}"),
            expert,
            prefix,
        })
    })
}

/// Returns the name of a module of the block that predicts later tokens in the form of the layer with this index;
/// `None` for other modules: `mtp.layers.0.mlp.up_proj` becomes `layers.24.mlp.up_proj`.
pub(super) fn of_predictor(arch: &Arch, module: &str, layer: u32) -> Option<String> {
    let predictor = arch.names.predictor?;
    let name = PREFIXES.iter().find_map(|prefix| {
        let name = module.strip_prefix(prefix)?;
        name.strip_prefix(predictor)
    })?;
    let layers = arch.names.layers;
    let (index, name) = match name.strip_prefix(layers).and_then(split_layer) {
        Some((index, name)) => (layer.saturating_add(index), name),
        None => (layer, name),
    };
    Some(format!("{layers}{index}.{name}"))
}

/// Returns the index of the layer of a module, known or not.
pub(super) fn layer_of(arch: &Arch, module: &str) -> Option<u32> {
    PREFIXES.iter().find_map(|prefix| {
        let name = module.strip_prefix(prefix)?;
        Some(split_layer(name.strip_prefix(arch.names.layers)?)?.0)
    })
}

/// Returns the Hugging Face name of a GGUF tensor: `blk.3.ffn_up.weight` becomes
/// `model.layers.3.mlp.up_proj.weight`. For a part of a fused module, returns the fused name.
pub fn to_hf(arch: &Arch, tensor: &str) -> Option<String> {
    with_prefix(arch.names.prefix, arch, tensor)
}

/// As [`to_hf`], in the form of the tensors of other layers.
pub(crate) fn to_hf_among(tensors: &[TensorInfo], arch: &Arch, tensor: &str) -> Option<String> {
    let mut others = tensors.iter();
    let same = others.find_map(|t| same_tensor(&t.name, arch, tensor));
    let prefix = || {
        tensors.iter().find_map(|t| {
            let (module, _) = t.name.rsplit_once('.')?;
            let module = to_gguf(arch, module)?;
            module.name.starts_with(BLOCKS).then_some(module.prefix)
        })
    };
    same.or_else(|| with_prefix(prefix().unwrap_or(arch.names.prefix), arch, tensor))
}

/// Returns the name of `tensor` in the form of `other`, if that is the same tensor of another layer.
fn same_tensor(other: &str, arch: &Arch, tensor: &str) -> Option<String> {
    let (layer, name) = split_layer(tensor.strip_prefix(BLOCKS)?)?;
    let mut modules = [
        other.rsplit_once('.').map(|(module, _)| module),
        split_ending(other).map(|(module, _)| module),
        Some(other),
    ]
    .into_iter()
    .flatten();
    let module = modules.find_map(|module| to_gguf(arch, module))?;
    let (other_layer, other_name) = split_layer(module.name.strip_prefix(BLOCKS)?)?;
    let part = name.rsplit_once('.').map_or(name, |(module, _)| module);
    let others = FUSED_BY_KEY_HEAD.iter().chain(arch.names.split);
    let mut fused = arch.fused.iter().chain(others);
    let is_part = |(whole, parts): &(&str, &[&str])| *whole == other_name && parts.contains(&part);
    let is_bias = |name: &str| name.ends_with(".bias") || name.ends_with("_bias");
    let mut pairs = arch.names.layer.iter().copied().flatten();
    let same = match pairs.any(|(_, gguf)| *gguf == name) {
        true => other_name == name,
        false => other_name == part || fused.any(is_part),
    };
    if !same || is_bias(name) != is_bias(other) {
        return None;
    }
    let inside = format!("{}{}{other_layer}.", module.prefix, arch.names.layers);
    let rest = other.strip_prefix(&inside)?;
    Some(format!(
        "{}{}{layer}.{rest}",
        module.prefix, arch.names.layers
    ))
}

fn with_prefix(prefix: &str, arch: &Arch, tensor: &str) -> Option<String> {
    let names = arch.names;
    let complete = tensor.strip_prefix(BLOCKS).and_then(split_layer);
    if let Some((layer, kind)) = complete.filter(|(_, kind)| COMPLETE.contains(kind)) {
        let mut pairs = names.layer.iter().copied().flatten();
        let (hf, _) = pairs.find(|(_, gguf)| *gguf == kind)?;
        return Some(format!("{prefix}{}{layer}.{hf}", names.layers));
    }
    let (module, part) = tensor.rsplit_once('.')?;
    if let Some((hf, _)) = DENSE_MODULES.iter().find(|(_, gguf)| *gguf == module) {
        return Some(format!("{hf}.{part}"));
    }
    if let Some((hf, gguf)) = names.outer.iter().find(|(_, gguf)| *gguf == module) {
        // In some multimodal models the head is next to the module with the layers.
        let parent = prefix.strip_suffix(".model.");
        let of_head = parent.map_or(String::new(), |parent| format!("{parent}."));
        let prefix = match *gguf {
            HEAD => &of_head,
            other if other.starts_with(CLASSIFIER_DENSE) => "",
            _ => prefix,
        };
        return Some(format!("{prefix}{hf}.{part}"));
    }
    if let Some((stack, index)) = module.rsplit_once('.')
        && let Some((hf, _)) = names.outer.iter().find(|(_, gguf)| *gguf == stack)
    {
        return Some(format!("{prefix}{hf}.{index}.{part}"));
    }
    let (layer, name) = split_layer(module.strip_prefix(BLOCKS)?)?;
    let whole = format!("{name}.{part}");
    let of = |name: &str| {
        let mut pairs = names.layer.iter().copied().flatten();
        pairs.find(|(_, gguf)| *gguf == name).map(|(hf, _)| *hf)
    };
    let fused = || {
        let mut fused = arch.fused.iter();
        of(fused.find(|(_, parts)| parts.contains(&name))?.0)
    };
    let bare = of(&whole);
    let hf = bare.or_else(|| of(name)).or_else(fused)?;
    let module = format!("{prefix}{}{layer}.{hf}", names.layers);
    Some(if bare.is_some() || BARE.contains(&hf) {
        module
    } else {
        format!("{module}.{part}")
    })
}

/// Returns whether only classification heads use a tensor.
pub(super) fn is_classifier_only(arch: &Arch, tensor: &str) -> bool {
    let mut parts = arch.names.classifier_only.iter();
    parts.any(|part| tensor.contains(part))
}

/// Returns whether a tensor does not belong to the language model or repeats the configuration.
pub(super) fn is_ignored(arch: &Arch, tensor: &str) -> bool {
    let mut all = IGNORED.iter().chain(arch.names.ignored);
    all.any(|part| tensor.contains(part))
}

fn is_stacked(part: &&str) -> bool {
    STACKED.contains(part)
}

/// Splits off the expert index: `mlp.experts.7.up_proj` becomes `mlp.experts.up_proj` and 7.
fn split_expert(name: &str) -> (String, Option<u32>) {
    let mut expert = None;
    let mut parts = Vec::new();
    for part in name.split('.') {
        match parse_index(part) {
            index @ Some(_) if expert.is_none() && parts.last().is_some_and(is_stacked) => {
                expert = index;
            }
            _ => parts.push(part),
        }
    }
    (parts.join("."), expert)
}

/// Splits off the layer index: `3.mlp.up_proj` becomes 3 and `mlp.up_proj`.
fn split_layer(name: &str) -> Option<(u32, &str)> {
    let (layer, name) = name.split_once('.')?;
    Some((parse_index(layer)?, name))
}

/// Parses a decimal number in canonical form; rejects `03` and `+3`.
fn parse_index(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::find;

    #[test]
    fn names_round_trip() {
        for (arch, hf, gguf) in [
            ("llama", "model.embed_tokens.weight", "token_embd"),
            ("llama", "model.norm.weight", "output_norm"),
            ("llama", "lm_head.weight", "output"),
            (
                "llama",
                "model.layers.0.input_layernorm.weight",
                "blk.0.attn_norm",
            ),
            (
                "qwen3",
                "model.layers.17.self_attn.q_norm.weight",
                "blk.17.attn_q_norm",
            ),
            (
                "llama",
                "model.layers.2.mlp.down_proj.weight",
                "blk.2.ffn_down",
            ),
            ("gpt2", "transformer.wpe.weight", "position_embd"),
            (
                "gpt2",
                "transformer.h.3.attn.c_attn.weight",
                "blk.3.attn_qkv",
            ),
            (
                "bert",
                "encoder.layer.1.output.dense.weight",
                "blk.1.ffn_down",
            ),
            (
                "olmo2",
                "model.layers.1.post_attention_layernorm.weight",
                "blk.1.post_attention_norm",
            ),
            (
                "gemma4",
                "model.layers.1.layer_scalar",
                "blk.1.layer_output_scale",
            ),
            (
                "qwen2moe",
                "model.layers.1.mlp.shared_expert_gate.weight",
                "blk.1.ffn_gate_inp_shexp",
            ),
        ] {
            let arch = find(arch).unwrap();
            let module = hf.strip_suffix(".weight").unwrap_or(hf);
            assert_eq!(to_gguf(arch, module).unwrap().name, gguf);
            let tensor = to_hf(arch, &format!("{gguf}.weight"));
            assert_eq!(tensor.as_deref(), Some(hf));
        }
    }

    #[test]
    fn maps_names_with_all_prefixes() {
        let llama = find("llama").unwrap();
        for name in [
            "layers.4.mlp.up_proj",
            "language_model.model.layers.4.mlp.up_proj",
            "model.language_model.layers.4.mlp.up_proj",
        ] {
            assert_eq!(to_gguf(llama, name).unwrap().name, "blk.4.ffn_up", "{name}");
        }
        let head = to_gguf(llama, "language_model.lm_head");
        assert_eq!(head.unwrap().name, "output");
        assert!(is_ignored(llama, "vision_tower.blocks.0.norm.weight"));
        let bert = find("bert").unwrap();
        for prefix in ["", "bert.", "roberta.", "model."] {
            let name = format!("{prefix}embeddings.LayerNorm");
            assert_eq!(to_gguf(bert, &name).unwrap().name, "token_embd_norm");
        }
    }

    #[test]
    fn splits_expert_indices() {
        let arch = find("qwen3moe").unwrap();
        for (name, expert) in [
            ("model.layers.2.mlp.experts.11.up_proj", Some(11)),
            ("model.layers.2.mlp.switch_mlp.up_proj", None),
        ] {
            let expected = GgufModule {
                name: "blk.2.ffn_up_exps".into(),
                expert,
                prefix: "model.",
            };
            assert_eq!(to_gguf(arch, name), Some(expected));
        }
        let streams = find("gemma3n").unwrap();
        let module = to_gguf(streams, "model.language_model.altup_projections.2").unwrap();
        assert_eq!(
            (module.name.as_str(), module.expert),
            ("altup_proj", Some(2))
        );
        let tensor = to_hf(streams, "altup_unembd_proj.1.weight");
        let expected = "model.altup_unembed_projections.1.weight";
        assert_eq!(tensor.as_deref(), Some(expected));
        for name in ["experts.1.up", "experts.1.2.up_proj", "3.up_proj"] {
            assert_eq!(to_gguf(arch, &format!("model.layers.2.mlp.{name}")), None);
        }
    }

    #[test]
    fn parts_of_fused_modules_map_to_the_fused_name() {
        let name = |arch: &str, tensor: &str| to_hf(find(arch).unwrap(), tensor);
        for (arch, tensor, expected) in [
            (
                "gpt2",
                "blk.0.attn_k.bias",
                "transformer.h.0.attn.c_attn.bias",
            ),
            (
                "phi3",
                "blk.0.ffn_gate.weight",
                "model.layers.0.mlp.gate_up_proj.weight",
            ),
        ] {
            assert_eq!(name(arch, tensor).as_deref(), Some(expected));
        }
    }

    #[test]
    fn ignores_redundant_tensors_of_an_architecture() {
        let gpt2 = find("gpt2").unwrap();
        assert!(is_ignored(gpt2, "transformer.h.0.attn.bias"));
        assert!(is_ignored(gpt2, "h.0.attn.masked_bias"));
        assert!(!is_ignored(gpt2, "h.0.attn.c_attn.bias"));
        assert!(!is_ignored(find("llama").unwrap(), "h.0.attn.bias"));
    }

    #[test]
    fn other_names_do_not_map() {
        let llama = find("llama").unwrap();
        for name in [
            "",
            "model",
            "model.layers",
            "model.layers.x.mlp.up_proj",
            "model.layers.03.mlp.up_proj",
            "model.layers.+3.mlp.up_proj",
            "model.layers.99999999999.mlp.up_proj",
            "model.layers.3.mlp.side_proj",
            "score",
        ] {
            assert_eq!(to_gguf(llama, name), None, "{name}");
            assert!(!is_ignored(llama, name), "{name}");
        }
        assert_eq!(to_hf(llama, "rope_freqs.weight"), None);
        assert_eq!(to_hf(llama, "weight"), None);
    }
}
