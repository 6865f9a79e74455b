//! Names: what Hugging Face and MLX call a tensor, and what GGUF calls it.

use crate::arch::{Arch, HEAD, PREFIXES};
use crate::format::TensorInfo;

/// Tensors that say nothing which the configuration does not, or that belong to eyes and ears.
const IGNORED: &[&str] = &[
    "rotary_emb.inv_freq",
    "vision_tower.",
    "vision_model.",
    "vision_embedder.",
    "embed_vision.",
    "multi_modal_projector.",
    "audio_tower.",
    "embed_audio.",
];

/// Parameters that are no part of a module: nothing stands behind their own name.
const BARE: &[&str] = &["layer_scalar"];

/// What stands in front of an expert's number.
const EXPERTS: &str = "experts";

const BLOCKS: &str = "blk.";

/// A module by its name in GGUF files.
#[derive(Debug, PartialEq)]
pub(super) struct Module {
    /// `blk.3.ffn_up`.
    pub(super) name: String,
    /// Which of the matrices that GGUF files hold as one.
    pub(super) expert: Option<u32>,
    /// What stood in front of its name.
    prefix: &'static str,
}

/// What GGUF calls a module: `model.layers.3.mlp.up_proj` is `blk.3.ffn_up`.
pub(super) fn to_gguf(arch: &Arch, module: &str) -> Option<Module> {
    let names = arch.names;
    PREFIXES.iter().find_map(|prefix| {
        let name = module.strip_prefix(prefix)?;
        if let Some((_, gguf)) = names.outer.iter().find(|(hf, _)| *hf == name) {
            return Some(Module {
                name: (*gguf).to_string(),
                expert: None,
                prefix,
            });
        }
        let (layer, name) = number(name.strip_prefix(names.layers)?)?;
        let (name, expert) = one_of_many(name);
        let mut pairs = names.layer.iter().copied().flatten();
        let (_, gguf) = pairs.find(|(hf, _)| *hf == name)?;
        Some(Module {
            name: format!("{BLOCKS}{layer}.{gguf}"),
            expert,
            prefix,
        })
    })
}

/// What Hugging Face calls a tensor of GGUF: `blk.3.ffn_up.weight` is
/// `model.layers.3.mlp.up_proj.weight`. Of a part of a fused module, what it calls that one.
pub(crate) fn to_hf(arch: &Arch, tensor: &str) -> Option<String> {
    behind(arch.names.prefix, arch, tensor)
}

/// The same, as these tensors would call it.
pub(in crate::load) fn to_hf_among(
    tensors: &[TensorInfo],
    arch: &Arch,
    tensor: &str,
) -> Option<String> {
    let prefix = tensors.iter().find_map(|t| {
        let (module, _) = t.name.rsplit_once('.')?;
        let module = to_gguf(arch, module)?;
        module.name.starts_with(BLOCKS).then_some(module.prefix)
    });
    behind(prefix.unwrap_or(arch.names.prefix), arch, tensor)
}

fn behind(prefix: &str, arch: &Arch, tensor: &str) -> Option<String> {
    let (module, part) = tensor.rsplit_once('.')?;
    let names = arch.names;
    if let Some((hf, gguf)) = names.outer.iter().find(|(_, gguf)| *gguf == module) {
        let prefix = if *gguf == HEAD { "" } else { prefix };
        return Some(format!("{prefix}{hf}.{part}"));
    }
    let (layer, name) = number(module.strip_prefix(BLOCKS)?)?;
    let of = |name: &str| {
        let mut pairs = names.layer.iter().copied().flatten();
        pairs.find(|(_, gguf)| *gguf == name).map(|(hf, _)| *hf)
    };
    let fused = || {
        let mut fused = arch.fused.iter();
        of(fused.find(|(_, parts)| parts.contains(&name))?.0)
    };
    let hf = of(name).or_else(fused)?;
    let module = format!("{prefix}{}{layer}.{hf}", names.layers);
    Some(if BARE.contains(&hf) {
        module
    } else {
        format!("{module}.{part}")
    })
}

/// Whether a tensor is no part of the language model, or repeats the configuration.
pub(super) fn is_ignored(arch: &Arch, tensor: &str) -> bool {
    let mut all = IGNORED.iter().chain(arch.names.ignored);
    all.any(|part| tensor.contains(part))
}

/// `mlp.experts.7.up_proj` is number 7 of `mlp.experts.up_proj`.
fn one_of_many(name: &str) -> (String, Option<u32>) {
    let mut expert = None;
    let mut kept = Vec::new();
    for part in name.split('.') {
        match strict(part) {
            number @ Some(_) if expert.is_none() && kept.last() == Some(&EXPERTS) => {
                expert = number;
            }
            _ => kept.push(part),
        }
    }
    (kept.join("."), expert)
}

/// `3.mlp.up_proj` is layer `3` and `mlp.up_proj`.
fn number(name: &str) -> Option<(u32, &str)> {
    let (layer, name) = name.split_once('.')?;
    Some((strict(layer)?, name))
}

/// A number in its one spelling: `03` and `+3` would be 3 too.
fn strict(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::find;

    #[test]
    fn names_go_both_ways() {
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
        ] {
            let arch = find(arch).unwrap();
            let module = hf.strip_suffix(".weight").unwrap_or(hf);
            assert_eq!(to_gguf(arch, module).unwrap().name, gguf);
            let tensor = to_hf(arch, &format!("{gguf}.weight"));
            assert_eq!(tensor.as_deref(), Some(hf));
        }
    }

    #[test]
    fn a_language_model_may_be_a_part() {
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
    fn experts_have_numbers() {
        let arch = find("qwen3moe").unwrap();
        for (name, expert) in [
            ("model.layers.2.mlp.experts.11.up_proj", Some(11)),
            ("model.layers.2.mlp.switch_mlp.up_proj", None),
        ] {
            let wanted = Module {
                name: "blk.2.ffn_up_exps".into(),
                expert,
                prefix: "model.",
            };
            assert_eq!(to_gguf(arch, name), Some(wanted));
        }
        for name in ["experts.1.up", "experts.1.2.up_proj", "3.up_proj"] {
            assert_eq!(to_gguf(arch, &format!("model.layers.2.mlp.{name}")), None);
        }
    }

    #[test]
    fn a_part_of_a_fused_module_is_named_by_the_whole() {
        let name = |arch: &str, tensor: &str| to_hf(find(arch).unwrap(), tensor);
        for (arch, tensor, wanted) in [
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
            assert_eq!(name(arch, tensor).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn parameters_of_a_family_may_say_nothing() {
        let gpt2 = find("gpt2").unwrap();
        assert!(is_ignored(gpt2, "transformer.h.0.attn.bias"));
        assert!(is_ignored(gpt2, "h.0.attn.masked_bias"));
        assert!(!is_ignored(gpt2, "h.0.attn.c_attn.bias"));
        assert!(!is_ignored(find("llama").unwrap(), "h.0.attn.bias"));
    }

    #[test]
    fn other_names_are_nobodys() {
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
