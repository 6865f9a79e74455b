//! Files of a speech model in a Hugging Face folder, next to the weights.

use super::keys::{self, TOKENIZER, TOKENIZER_CONFIG};
use super::speech_tensors::rows;
use super::tensor_plan::{TensorPlan, torch_dtype};
use crate::arch::{self, Config};
use crate::audio::MelFilters;
use crate::error::{ErrorKind, Result};
use crate::load::source::Opened;
use crate::load::speech_names::{DECODER_POSITIONS, EMBEDDING};
use crate::load::{hf, speech_model, tokenizer};
use crate::output::OutputFolder;
use crate::speech::SpecialTokens;
use serde_json::{Map, Value};

/// Front end of speech models.
const PREPROCESSOR: &str = "preprocessor_config.json";

/// Files that are copied if the source is a folder with them.
const COPIED_FILES: [&str; 10] = [
    TOKENIZER,
    TOKENIZER_CONFIG,
    PREPROCESSOR,
    hf::GENERATION,
    "added_tokens.json",
    "merges.txt",
    "normalizer.json",
    "processor_config.json",
    "special_tokens_map.json",
    "vocab.json",
];

/// Maximum difference of a mel filter to the computed one. Those of published files differ by 4e-9.
const FILTER_ERROR_MAX: f32 = 1e-6;

/// Writes the configuration files and the tokenizer of a speech model. Files of a folder are copied,
/// others are generated.
pub(super) fn write_side_files(
    model: &Opened,
    plans: &[TensorPlan<'_>],
    folder: &OutputFolder,
    notes: &mut Vec<String>,
) -> Result<()> {
    let facts = facts(model, plans)?;
    let source = source_config(model)?;
    write_json(folder, hf::CONFIG, &hf::speech_config(&facts, &source)?)?;
    let mut copied = Vec::new();
    for name in COPIED_FILES {
        let text = match &model.folder {
            Some(from) => keys::text(from, name)?,
            None if name == TOKENIZER => tokenizer::file_next_to(model)?,
            None => None,
        };
        if let Some(text) = text {
            folder.text(name, &text)?;
            copied.push(name);
        }
    }
    let mut generation = hf::generation_config(&facts)?;
    for key in hf::GENERATION_KEYS {
        if let (Some(value), Value::Object(generation)) = (source.get(key), &mut generation) {
            generation.insert(key.to_string(), value.clone());
        }
    }
    for (name, value) in [
        (PREPROCESSOR, hf::preprocessor_config(&facts)?),
        (hf::GENERATION, generation),
        (TOKENIZER_CONFIG, hf::speech_tokenizer_config(&facts.tokens)),
    ] {
        if !copied.contains(&name) {
            write_json(folder, name, &value)?;
        }
    }
    if !copied.contains(&TOKENIZER) {
        match tokenizer_json(model, facts.config.vocab) {
            Ok(Some(text)) => folder.text(TOKENIZER, &text)?,
            Ok(None) => notes.push(format!(
                "no {TOKENIZER}: the source has none, and Tabla reads no model without it: copy that of \
                 the original model"
            )),
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                notes.push(format!("no {TOKENIZER}: {e}"));
            }
            Err(e) => return Err(e),
        }
    }
    notes.extend(filter_note(model)?);
    Ok(())
}

/// Returns the settings of a folder of Hugging Face. Those of MLX have other names.
fn source_config(model: &Opened) -> Result<Map<String, Value>> {
    let text = match &model.folder {
        Some(from) => keys::text(from, hf::CONFIG)?,
        None => None,
    };
    let value = text.and_then(|text| serde_json::from_str(&text).ok());
    Ok(match value {
        Some(Value::Object(config)) if config.contains_key("d_model") => config,
        _ => Map::new(),
    })
}

fn write_json(folder: &OutputFolder, name: &str, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value);
    folder.text(name, &text.unwrap_or_default())
}

/// Collects the properties that configuration files contain.
///
/// # Errors
///
/// `Format` for hyperparameters out of range, `Unsupported` for a vocabulary of no speech model.
fn facts(model: &Opened, plans: &[TensorPlan<'_>]) -> Result<hf::SpeechFacts> {
    let mut config = Config::read(&model.file.metadata)?;
    config.vocab = rows(plans, EMBEDDING)?;
    // Fine-tunes may have a shorter maximum length than positions.
    config.context = rows(plans, DECODER_POSITIONS)?;
    let arch = arch::find(&config.architecture)?;
    let mut config = config.validate(arch)?;
    let heads = speech_model::alignment_heads(model, &config)?;
    if let Some(encoder) = &mut config.speech {
        encoder.alignment_heads = heads;
    }
    Ok(hf::SpeechFacts {
        tokens: SpecialTokens::of(config.vocab)?,
        config,
        dtype: torch_dtype(plans),
    })
}

/// Generates the `tokenizer.json` of a file; `None` for a model without a vocabulary.
fn tokenizer_json(model: &Opened, vocab: u32) -> Result<Option<String>> {
    let metadata = &model.file.metadata;
    if model.folder.is_some() {
        return Ok(None);
    }
    if metadata.get(tokenizer::MODEL).is_some() {
        return tokenizer::vocab(metadata)?.to_json().map(Some);
    }
    if metadata.get(tokenizer::TOKENS).is_none() {
        return Ok(None);
    }
    let vocab = speech_model::ranked_vocab(metadata, vocab)?;
    vocab.to_json().map(Some)
}

/// Returns a note if the file has other mel filters than `transformers` computes.
fn filter_note(model: &Opened) -> Result<Option<String>> {
    let Some(filters) = model.file.metadata.f32s(speech_model::FILTERS)? else {
        return Ok(None);
    };
    let config = Config::read(&model.file.metadata)?;
    let mels = config.speech.map_or(1, |encoder| encoder.mels);
    let computed = MelFilters::slaney(mels.max(1) as usize).to_rows();
    let differences = filters.iter().zip(&computed).map(|(a, b)| (a - b).abs());
    let largest = differences.fold(0.0, f32::max);
    let is_same = filters.len() == computed.len() && largest <= FILTER_ERROR_MAX;
    Ok((!is_same).then(|| {
        format!(
            "no mel filters: transformers computes its own, which differ from those of the file by up to \
             {largest}"
        )
    }))
}
