//! Tensors and properties of speech models.
//!
//! Files have the names of OpenAI (ggml, GGUF), MLX or Hugging Face. All become the names of
//! recipes, which follow the encoder-decoder models of llama.cpp.

use super::source::Opened;
use super::weight::{Data, Weight, f32_bytes, floats};
use crate::arch::{Config, SPEECH, is_speech};
use crate::audio::MelFilters;
use crate::dtype::DType;
use crate::error::{Context, Result, bail};
use crate::format::write::Writer;
use crate::format::{Directory, Kind, Metadata, TensorInfo, Value};
use crate::model::SpeechModel;
use crate::op::builder::SpeechTokens;
use crate::speech::SpecialTokens;
use crate::text::Tokenizer;

/// Name in recipes, and names in files.
type Row = (&'static str, &'static [&'static str]);

/// Names outside of the layers.
const OUTER: &[Row] = &[
    (
        "token_embd.weight",
        &[
            "decoder.token_embedding.weight",
            "decoder.embed_tokens.weight",
        ],
    ),
    (
        "position_embd.weight",
        &[
            "decoder.positional_embedding",
            "decoder.embed_positions.weight",
        ],
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
        &[
            "encoder.positional_embedding",
            "encoder.embed_positions.weight",
        ],
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
const POSITIONS: &str = "enc.position_embd.weight";

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

/// Size of the heads of every published model.
const HEAD_DIM: u32 = 64;

/// Minimum number of positions of the decoder: a prompt and a text.
const CONTEXT_MIN: u32 = 16;

/// Token embedding in the files of OpenAI.
pub(super) const EMBEDDING: &str = "decoder.token_embedding.weight";

/// Key of the mel filters.
pub(super) const FILTERS: &str = "whisper.encoder.mel_filters";

/// Prefixes of all names.
const PREFIXES: &[&str] = &["model.", "whisper.", ""];

/// The token of a space, in both vocabularies of speech models.
const BLANK: u32 = 220;

/// Tensors that repeat others or the configuration.
const IGNORED: &[&str] = &["proj_out.weight", "alignment_heads"];

/// Returns the name of a tensor in recipes.
fn recipe_name(tensor: &str) -> Option<String> {
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
pub(super) fn file_name(tensor: &str) -> Result<Option<String>> {
    if IGNORED.iter().any(|name| tensor.ends_with(name)) {
        return Ok(None);
    }
    let Some(name) = recipe_name(tensor) else {
        bail!(
            Unsupported,
            "unexpected tensor {tensor}: not part of a speech model"
        );
    };
    if let Some((_, names)) = OUTER.iter().find(|(ours, _)| *ours == name) {
        return Ok(Some(names[0].to_string()));
    }
    let side = if name.starts_with("enc.") {
        "encoder"
    } else {
        "decoder"
    };
    let rest = name.trim_start_matches("enc.").trim_start_matches("blk.");
    let (index, module) = rest.split_once('.').unwrap_or_default();
    let (module, role) = module.rsplit_once('.').unwrap_or_default();
    let row = LAYER.iter().find(|(ours, _)| *ours == module);
    Ok(row.map(|(_, names)| format!("{side}.blocks.{index}.{}.{role}", names[0])))
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
    let find = |ours: &str| {
        let mut tensors = file.tensors.iter();
        tensors.find(|tensor| recipe_name(&tensor.name).as_deref() == Some(ours))
    };
    let (Some(convolution), Some(embedding)) =
        (find("enc.conv1.weight"), find("token_embd.weight"))
    else {
        return Ok(None);
    };
    let dim = |tensor: Option<&TensorInfo>, at: usize| {
        let dim = tensor.and_then(|tensor| tensor.dims.get(at)).copied();
        u32::try_from(dim.unwrap_or(0)).unwrap_or(u32::MAX)
    };
    let layers = |side: &str| {
        let names = file.tensors.iter().filter_map(|t| recipe_name(&t.name));
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
        ("encoder.context_length", dim(find(POSITIONS), 1)),
        ("encoder.embedding_length", width),
        ("encoder.attention.head_count", width / HEAD_DIM),
        ("encoder.block_count", layers("enc.")),
        ("encoder.mels_count", dim(Some(convolution), 1)),
        (
            "decoder.context_length",
            dim(find("position_embd.weight"), 1),
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

/// Returns the weights of a speech model.
///
/// # Errors
///
/// `Unsupported` for an unexpected tensor or a type without kernels, `Format` for a convolution of
/// another width.
pub(super) fn weights(file: &Directory, config: &Config) -> Result<Vec<Weight>> {
    let mut weights = Vec::with_capacity(file.tensors.len());
    for (index, tensor) in file.tensors.iter().enumerate() {
        if IGNORED.iter().any(|name| tensor.name.ends_with(name)) {
            continue;
        }
        let Some(name) = recipe_name(&tensor.name) else {
            bail!(
                Unsupported,
                "unexpected tensor {}: not part of a speech model",
                tensor.name
            );
        };
        let weight = if name.starts_with("enc.conv") {
            convolution(name, file, index)
        } else {
            Weight::plain(name, file, index)
        };
        let mut weight = weight.context(&tensor.name)?;
        // Tensors of ggml files are not aligned.
        if file.kind == Kind::Ggml {
            weight.codes = Data::computed(index, weight.codes.bytes(file).to_vec());
        }
        weights.push(weight);
    }
    if let (Some(encoder), None) = (
        &config.speech,
        weights.iter().find(|weight| weight.name == POSITIONS),
    ) {
        weights.push(Weight {
            name: POSITIONS.to_string(),
            dtype: DType::F32,
            rows: encoder.context,
            cols: config.dim,
            stack: 1,
            codes: Data::computed(0, f32_bytes(&sinusoids(encoder.context, config.dim))),
            scales: None,
        });
    }
    Ok(weights)
}

/// Returns a tensor of a convolution: the weight as `[out, 3 in]`, the bias as a vector.
fn convolution(name: String, file: &Directory, index: usize) -> Result<Weight> {
    let tensor = &file.tensors[index];
    let weight = Weight::plain(name, file, index)?;
    let size = weight.rows.saturating_mul(weight.cols);
    let shape = |rows: u32, cols: u32| Weight {
        rows,
        cols,
        stack: 1,
        ..weight.clone()
    };
    if weight.name.ends_with(".bias") {
        let mut bias = shape(1, size);
        if bias.dtype != DType::F32 {
            bias.dtype = DType::F32;
            bias.codes = Data::computed(index, f32_bytes(&floats(file, tensor)?));
        }
        return Ok(bias);
    }
    match tensor.dims[..] {
        [3, _, out] if u32::try_from(out).is_ok() => {
            let out = u32::try_from(out).unwrap_or(1).max(1);
            Ok(shape(out, size / out))
        }
        // MLX stores the channels innermost.
        [_, 3, _] => channels_last(&weight, file, tensor),
        _ => bail!(
            Format,
            "expected a convolution of width 3, got the shape {:?}",
            tensor.dims
        ),
    }
}

/// Transposes a convolution from `[out, 3, in]` to `[out, in, 3]`.
fn channels_last(weight: &Weight, file: &Directory, tensor: &TensorInfo) -> Result<Weight> {
    let values = floats(file, tensor)?;
    let channels = weight.cols as usize;
    let taps = values.chunks_exact(3 * channels);
    let rows = taps.len();
    let values: Vec<f32> = taps
        .flat_map(|taps| (0..3 * channels).map(|i| taps[i % 3 * channels + i / 3]))
        .collect();
    Ok(Weight {
        dtype: DType::F32,
        rows: u32::try_from(rows).unwrap_or(u32::MAX),
        cols: weight.cols.saturating_mul(3),
        stack: 1,
        codes: Data::computed(weight.codes.tensor, f32_bytes(&values)),
        ..weight.clone()
    })
}

/// Position embedding of the encoder: sines, then cosines, of timescales from 1 to 10000.
fn sinusoids(rows: u32, dim: u32) -> Vec<f32> {
    let half = dim / 2;
    let step = 10_000f64.ln() / f64::from(half.saturating_sub(1).max(1));
    let mut values = Vec::with_capacity(rows as usize * dim as usize);
    for row in 0..rows {
        let angles = (0..half).map(|i| f64::from(row) * (-step * f64::from(i)).exp());
        values.extend(angles.clone().map(|angle| angle.sin() as f32));
        values.extend(angles.map(|angle| angle.cos() as f32));
    }
    values
}

/// Returns the layers and heads of the decoder whose cross-attention aligns tokens with audio: those
/// of the configuration, those of a published model of the same shape, or all of the upper half of
/// the layers.
///
/// # Errors
///
/// `Format` for a list of the configuration with heads that do not exist.
pub(super) fn alignment_heads(model: &Opened, config: &Config) -> Result<Vec<(u32, u32)>> {
    let [layers, heads] = [config.layers, config.heads];
    let configured = match &model.folder {
        Some(folder) => folder.alignment_heads()?,
        None => None,
    };
    let Some(list) = configured.filter(|list| !list.is_empty()) else {
        return Ok(crate::speech::alignment_heads(layers, heads, config.vocab));
    };
    match list
        .iter()
        .find(|(layer, head)| *layer >= layers || *head >= heads)
    {
        None => Ok(list),
        Some(bad) => bail!(
            Format,
            "alignment_heads: {bad:?} does not exist: there are {layers} layers of {heads} heads"
        ),
    }
}

/// Returns the tokens that the sampling stages refer to.
///
/// # Errors
///
/// `Unsupported` if no speech model has a vocabulary of this size.
pub(super) fn tokens(vocab: u32) -> Result<SpeechTokens> {
    let tokens = SpecialTokens::of(vocab)?;
    Ok(SpeechTokens {
        blank: BLANK,
        eot: tokens.eot,
        no_timestamps: tokens.notimestamps,
        first_timestamp: tokens.first_timestamp,
    })
}

/// Builds the tokenizer of a file with the tokens alone, as bytes by rank. Special tokens follow from
/// the size of the vocabulary.
///
/// # Errors
///
/// `Format` if text tokens are missing, `Unsupported` if no speech model has this vocabulary.
pub(super) fn tokenizer(meta: &Metadata, vocab: u32) -> Result<Tokenizer> {
    let ids = SpecialTokens::of(vocab)?;
    let list = meta.get("tokenizer.ggml.tokens").and_then(Value::array);
    let tokens = list.iter().flat_map(|list| list.iter());
    let tokens = tokens.map(|token| match token {
        Value::String(bytes) => bytes,
        _ => b"",
    });
    let tokens: Vec<&[u8]> = tokens.take(ids.eot as usize).collect();
    if tokens.len() < ids.eot as usize {
        bail!(
            Format,
            "the file has {} text tokens, a vocabulary of {vocab} has {}",
            tokens.len(),
            ids.eot
        );
    }
    let specials: Vec<String> = (ids.eot..vocab).map(|id| special_text(&ids, id)).collect();
    Tokenizer::from_ranks(&tokens, &specials)
}

/// Returns the text of a special token.
fn special_text(ids: &SpecialTokens, id: u32) -> String {
    if ids.is_timestamp(id) {
        return format!("<|{:.2}|>", ids.seconds(id));
    }
    let named = [
        (ids.eot, "endoftext"),
        (ids.sot, "startoftranscript"),
        (ids.translate, "translate"),
        (ids.transcribe, "transcribe"),
        (ids.startoflm, "startoflm"),
        (ids.startofprev, "startofprev"),
        (ids.nospeech, "nospeech"),
        (ids.notimestamps, "notimestamps"),
    ];
    let name = named.iter().find(|(named, _)| *named == id);
    let language = ids.language_of(id).map(|language| language.code);
    format!(
        "<|{}|>",
        name.map(|(_, name)| *name).or(language).unwrap_or("")
    )
}

/// Returns the properties of a speech model that its tables do not contain; `None` for other models.
///
/// # Errors
///
/// `Unsupported` if no speech model has this vocabulary, `Format` for invalid mel filters.
pub(super) fn read(model: &Opened, config: &Config) -> Result<Option<SpeechModel>> {
    let Some(encoder) = &config.speech else {
        return Ok(None);
    };
    if config.context < CONTEXT_MIN {
        bail!(
            Format,
            "whisper.decoder.context_length: expected at least {CONTEXT_MIN}, got {}",
            config.context
        );
    }
    let filters = match model.file.metadata.f32s(FILTERS)? {
        Some(rows) => MelFilters::from_rows(&rows).context(FILTERS)?,
        None => MelFilters::slaney(encoder.mels as usize),
    };
    Ok(Some(SpeechModel {
        tokens: SpecialTokens::of(config.vocab)?,
        filters,
        context: encoder.context,
        alignment_heads: encoder.alignment_heads.len(),
    }))
}
