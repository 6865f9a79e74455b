//! Tensor names of speech models, and the hyperparameters that follow from their shapes.
//!
//! Files have the names of OpenAI (ggml, GGUF), MLX or Hugging Face. All become the names of
//! recipes, which follow the encoder-decoder models of llama.cpp.

use crate::arch::{SPEECH, is_speech};
use crate::error::{Result, bail};
use crate::format::write::Writer;
use crate::format::{Directory, Metadata, TensorInfo};

/// Name in recipes, and names in files: that of OpenAI first, that of Hugging Face last.
type Row = (&'static str, &'static [&'static str]);

/// Names outside of the layers.
const OUTER: &[Row] = &[
    (
        "token_embd.weight",
        &[EMBEDDING, "decoder.embed_tokens.weight"],
    ),
    (
        "position_embd.weight",
        &[DECODER_POSITIONS, "decoder.embed_positions.weight"],
    ),
    (
        "output_norm.weight",
        &["decoder.ln.weight", "decoder.layer_norm.weight"],
    ),
    (
        "output_norm.bias",
        &["decoder.ln.bias", "decoder.layer_norm.bias"],
    ),
    (
        POSITIONS,
        &[ENCODER_POSITIONS, "encoder.embed_positions.weight"],
    ),
    (
        "enc.output_norm.weight",
        &["encoder.ln_post.weight", "encoder.layer_norm.weight"],
    ),
    (
        "enc.output_norm.bias",
        &["encoder.ln_post.bias", "encoder.layer_norm.bias"],
    ),
    ("enc.conv1.weight", &["encoder.conv1.weight"]),
    ("enc.conv1.bias", &["encoder.conv1.bias"]),
    ("enc.conv2.weight", &["encoder.conv2.weight"]),
    ("enc.conv2.bias", &["encoder.conv2.bias"]),
];

/// Position embedding of the encoder, which MLX files do not contain.
pub(super) const POSITIONS: &str = "enc.position_embd.weight";

/// Modules of a layer.
const LAYER: &[Row] = &[
    ("attn_norm", &["attn_ln", "self_attn_layer_norm"]),
    ("attn_q", &["attn.query", "self_attn.q_proj"]),
    ("attn_k", &["attn.key", "self_attn.k_proj"]),
    ("attn_v", &["attn.value", "self_attn.v_proj"]),
    ("attn_output", &["attn.out", "self_attn.out_proj"]),
    (
        "cross_attn_norm",
        &["cross_attn_ln", "encoder_attn_layer_norm"],
    ),
    ("cross_attn_q", &["cross_attn.query", "encoder_attn.q_proj"]),
    ("cross_attn_k", &["cross_attn.key", "encoder_attn.k_proj"]),
    ("cross_attn_v", &["cross_attn.value", "encoder_attn.v_proj"]),
    (
        "cross_attn_output",
        &["cross_attn.out", "encoder_attn.out_proj"],
    ),
    ("ffn_norm", &["mlp_ln", "final_layer_norm"]),
    ("ffn_up", &["mlp.0", "mlp1", "fc1"]),
    ("ffn_down", &["mlp.2", "mlp2", "fc2"]),
];

/// Prefixes of all names.
const PREFIXES: &[&str] = &[HF_PREFIX, "whisper.", ""];
/// Prefix of the files of Hugging Face.
const HF_PREFIX: &str = "model.";

/// Tensors that repeat others or the configuration.
const IGNORED: &[&str] = &["proj_out.weight", "alignment_heads"];

/// Token embedding in the files of OpenAI.
pub const EMBEDDING: &str = "decoder.token_embedding.weight";
/// Position embeddings of the encoder in the files of OpenAI.
pub const ENCODER_POSITIONS: &str = "encoder.positional_embedding";
/// Position embeddings of the decoder in the files of OpenAI.
pub const DECODER_POSITIONS: &str = "decoder.positional_embedding";

/// Size of the heads of every published model.
const HEAD_DIM: u32 = 64;

/// Returns the name of a tensor in recipes; `None` if it is ignored.
///
/// # Errors
///
/// `Unsupported` for an unexpected tensor.
pub(super) fn recipe_name(tensor: &str) -> Result<Option<String>> {
    if IGNORED.iter().any(|name| tensor.ends_with(name)) {
        return Ok(None);
    }
    match find(tensor) {
        Some(name) => Ok(Some(name)),
        None => bail!(
            Unsupported,
            "unexpected tensor {tensor}: not part of a speech model"
        ),
    }
}

/// Returns the name of a tensor in recipes; `None` for other tensors.
fn find(tensor: &str) -> Option<String> {
    PREFIXES.iter().find_map(|prefix| {
        let name = tensor.strip_prefix(prefix)?;
        if let Some((ours, _)) = OUTER.iter().find(|(_, names)| names.contains(&name)) {
            return Some((*ours).to_string());
        }
        let (side, rest) = name.split_once('.')?;
        let side = match side {
            "encoder" => "enc.",
            "decoder" => "",
            _ => return None,
        };
        let layer = ["blocks.", "layers."];
        let (index, module) = layer
            .iter()
            .find_map(|layer| rest.strip_prefix(layer))?
            .split_once('.')?;
        let (module, role) = module.rsplit_once('.')?;
        let (ours, _) = LAYER.iter().find(|(_, names)| names.contains(&module))?;
        let index: u32 = index.parse().ok()?;
        Some(format!("{side}blk.{index}.{ours}.{role}"))
    })
}

/// Returns the name of a tensor in the files of OpenAI; `None` if it is not written.
///
/// # Errors
///
/// `Unsupported` for an unexpected tensor.
pub fn file_name(tensor: &str) -> Result<Option<String>> {
    let name = recipe_name(tensor)?;
    Ok(name.and_then(|name| with_names(&name, "blocks", |names| names.first())))
}

/// Returns the name of a tensor in the files of Hugging Face; `None` for other tensors.
pub fn hf_name(tensor: &str) -> Option<String> {
    let name = with_names(&find(tensor)?, "layers", |names| names.last())?;
    Some(format!("{HF_PREFIX}{name}"))
}

/// Returns the name of a tensor of recipes with the names that `choose` selects. `layers` is the name
/// of the list of layers.
fn with_names(
    tensor: &str,
    layers: &str,
    choose: fn(&'static [&'static str]) -> Option<&'static &'static str>,
) -> Option<String> {
    if let Some((_, names)) = OUTER.iter().find(|(ours, _)| *ours == tensor) {
        return choose(names).map(ToString::to_string);
    }
    let (side, rest) = match tensor.strip_prefix("enc.") {
        Some(rest) => ("encoder", rest),
        None => ("decoder", tensor),
    };
    let (index, module) = rest.strip_prefix("blk.")?.split_once('.')?;
    let (module, role) = module.rsplit_once('.')?;
    let (_, names) = LAYER.iter().find(|(ours, _)| *ours == module)?;
    let module = choose(names)?;
    Some(format!("{side}.{layers}.{index}.{module}.{role}"))
}

/// Returns the hyperparameters of a GGUF file of a speech model that lacks them, from the shapes of its
/// tensors, with the vocabulary of the file if it has one. `None` for other files.
///
/// # Errors
///
/// `Format` for a model without encoder or decoder.
pub(super) fn metadata_of_tensors(file: &Directory) -> Result<Option<Metadata>> {
    let meta = &file.metadata;
    let architecture = meta.str("general.architecture")?;
    let is_complete = meta.get("whisper.encoder.block_count").is_some()
        && meta.get("whisper.decoder.embedding_length").is_some();
    if is_complete || architecture.is_some_and(|name| !is_speech(name)) {
        return Ok(None);
    }
    let tensor = |ours: &str| {
        let mut tensors = file.tensors.iter();
        tensors.find(|tensor| find(&tensor.name).as_deref() == Some(ours))
    };
    let (Some(convolution), Some(embedding)) =
        (tensor("enc.conv1.weight"), tensor("token_embd.weight"))
    else {
        return Ok(None);
    };
    let dim = |tensor: Option<&TensorInfo>, at: usize| {
        let dim = tensor.and_then(|tensor| tensor.dims.get(at)).copied();
        u32::try_from(dim.unwrap_or(0)).unwrap_or(u32::MAX)
    };
    let layers = |side: &str| {
        let names = file.tensors.iter().filter_map(|t| find(&t.name));
        let indices = names.filter_map(|name| {
            let rest = name.strip_prefix(side)?.strip_prefix("blk.")?;
            rest.split('.').next()?.parse::<u32>().ok()
        });
        indices.max().map_or(0, |last| last.saturating_add(1))
    };
    let width = dim(Some(embedding), 0);
    let mut keys = Writer::new();
    keys.set("general.architecture", SPEECH);
    for (key, value) in [
        ("vocab_size", dim(Some(embedding), 1)),
        ("encoder.context_length", dim(tensor(POSITIONS), 1)),
        ("encoder.embedding_length", width),
        ("encoder.attention.head_count", width / HEAD_DIM),
        ("encoder.block_count", layers("enc.")),
        ("encoder.mels_count", dim(Some(convolution), 1)),
        (
            "decoder.context_length",
            dim(tensor("position_embd.weight"), 1),
        ),
        ("decoder.embedding_length", width),
        ("decoder.attention.head_count", width / HEAD_DIM),
        ("decoder.block_count", layers("")),
    ] {
        keys.set(&format!("whisper.{key}"), value);
    }
    for (key, value) in meta.iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
        keys.copy(key, value);
    }
    let keys = crate::format::open_bytes("the tensor shapes", keys.finish()?)?;
    Ok(Some(keys.metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_openai_and_hugging_face_are_equal() {
        for (openai, hf) in [
            (EMBEDDING, "model.decoder.embed_tokens.weight"),
            (ENCODER_POSITIONS, "model.encoder.embed_positions.weight"),
            ("encoder.conv2.bias", "model.encoder.conv2.bias"),
            ("decoder.ln.bias", "model.decoder.layer_norm.bias"),
            (
                "encoder.blocks.11.attn.key.weight",
                "model.encoder.layers.11.self_attn.k_proj.weight",
            ),
            (
                "decoder.blocks.0.cross_attn.out.bias",
                "model.decoder.layers.0.encoder_attn.out_proj.bias",
            ),
            (
                "decoder.blocks.2.mlp.0.weight",
                "model.decoder.layers.2.fc1.weight",
            ),
        ] {
            assert_eq!(hf_name(openai).as_deref(), Some(hf));
            assert_eq!(hf_name(hf).as_deref(), Some(hf));
            assert_eq!(file_name(hf).unwrap().as_deref(), Some(openai));
        }
        for other in [
            "",
            "encoder.x",
            "decoder.blocks.x.mlp.0.weight",
            "proj_out.weight",
        ] {
            assert_eq!(hf_name(other), None, "{other}");
        }
        assert_eq!(file_name("proj_out.weight").unwrap(), None);
    }
}
