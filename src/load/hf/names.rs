//! Names: what Hugging Face and MLX call a tensor, and what GGUF calls it.

/// What may stand in front of a language model's tensors: nothing in files of a model without a
/// head, more where the model is a part of one that sees or hears.
const PREFIXES: &[&str] = &[
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "model.",
    "",
];

/// The head's module, by its name in GGUF files.
pub(super) const HEAD: &str = "output";

/// Modules outside of the layers.
const OUTER: &[(&str, &str)] = &[
    ("embed_tokens", "token_embd"),
    ("norm", "output_norm"),
    ("lm_head", HEAD),
];

/// Modules of a layer, behind `layers.N.` and `blk.N.`.
const LAYER: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// Tensors that say nothing which the configuration does not, or that belong to eyes and ears.
const IGNORED: &[&str] = &[
    "rotary_emb.inv_freq",
    "vision_tower.",
    "vision_model.",
    "multi_modal_projector.",
    "audio_tower.",
];

const LAYERS: &str = "layers.";
const BLOCKS: &str = "blk.";

/// What GGUF calls a module: `model.layers.3.mlp.up_proj` is `blk.3.ffn_up`.
pub(super) fn to_gguf(module: &str) -> Option<String> {
    PREFIXES.iter().find_map(|prefix| {
        let name = module.strip_prefix(prefix)?;
        if let Some((_, gguf)) = OUTER.iter().find(|(hf, _)| *hf == name) {
            return Some((*gguf).to_string());
        }
        let (layer, name) = layer(name.strip_prefix(LAYERS)?)?;
        let (_, gguf) = LAYER.iter().find(|(hf, _)| *hf == name)?;
        Some(format!("{BLOCKS}{layer}.{gguf}"))
    })
}

/// What Hugging Face calls a tensor of GGUF: `blk.3.ffn_up.weight` is
/// `model.layers.3.mlp.up_proj.weight`.
pub(crate) fn to_hf(tensor: &str) -> Option<String> {
    let (module, part) = tensor.rsplit_once('.')?;
    if let Some((hf, gguf)) = OUTER.iter().find(|(_, gguf)| *gguf == module) {
        let model = if *gguf == HEAD { "" } else { "model." };
        return Some(format!("{model}{hf}.{part}"));
    }
    let (layer, name) = layer(module.strip_prefix(BLOCKS)?)?;
    let (hf, _) = LAYER.iter().find(|(_, gguf)| *gguf == name)?;
    Some(format!("model.{LAYERS}{layer}.{hf}.{part}"))
}

/// Whether a tensor is no part of the language model, or repeats the configuration.
pub(super) fn is_ignored(tensor: &str) -> bool {
    IGNORED.iter().any(|part| tensor.contains(part))
}

/// `3.mlp.up_proj` is layer `3` and `mlp.up_proj`.
fn layer(name: &str) -> Option<(u32, &str)> {
    let (number, name) = name.split_once('.')?;
    // One spelling only: `03` and `+3` would be layer 3 too.
    let layer: u32 = number.parse().ok()?;
    (layer.to_string() == number).then_some((layer, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for (hf, gguf) in [
            ("model.embed_tokens", "token_embd"),
            ("model.norm", "output_norm"),
            ("lm_head", "output"),
            ("model.layers.0.input_layernorm", "blk.0.attn_norm"),
            ("model.layers.17.self_attn.q_proj", "blk.17.attn_q"),
            ("model.layers.17.self_attn.q_norm", "blk.17.attn_q_norm"),
            ("model.layers.2.mlp.down_proj", "blk.2.ffn_down"),
        ] {
            assert_eq!(to_gguf(hf).as_deref(), Some(gguf));
            let tensor = to_hf(&format!("{gguf}.weight"));
            assert_eq!(tensor, Some(format!("{hf}.weight")));
        }
    }

    #[test]
    fn a_language_model_may_be_a_part() {
        for name in [
            "layers.4.mlp.up_proj",
            "language_model.model.layers.4.mlp.up_proj",
            "model.language_model.layers.4.mlp.up_proj",
        ] {
            assert_eq!(to_gguf(name).as_deref(), Some("blk.4.ffn_up"), "{name}");
        }
        assert_eq!(to_gguf("language_model.lm_head").as_deref(), Some("output"));
        assert!(is_ignored("vision_tower.blocks.0.norm.weight"));
    }

    #[test]
    fn other_names_are_nobodys() {
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
            assert_eq!(to_gguf(name), None, "{name}");
            assert!(!is_ignored(name), "{name}");
        }
        assert_eq!(to_hf("rope_freqs.weight"), None);
        assert_eq!(to_hf("weight"), None);
    }
}
