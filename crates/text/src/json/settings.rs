//! The settings of a `tokenizer.json` that the keys of llama.cpp cannot express, as a key of its own in a GGUF file:
//! everything except the lists of tokens, scores and merges.

use super::file::read;
use crate::pair::PairFormat;
use crate::spec::{ModelSpec, TokenizerSpec};
use crate::special::AddedTokenOptions;
use crate::steps::Step;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use tabla_core::error::{Error, ErrorKind, Result, bail};

type IsSet = fn(&AddedTokenOptions) -> bool;

/// Options of added tokens, with their names in `tokenizer.json`.
const OPTIONS: [(&str, IsSet); 4] = [
    ("lstrip", |options| options.lstrip),
    ("rstrip", |options| options.rstrip),
    ("single_word", |options| options.single_word),
    ("normalized", |options| options.normalized),
];

/// Number of tokens that a message names for each option.
const NAMED_MAX: usize = 3;

/// The parts of a `tokenizer.json` that are copied.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    model: ModelParts,
}

#[derive(Deserialize)]
struct ModelParts {
    max_input_chars_per_word: Option<usize>,
}

/// Whether texts without added tokens have the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddedTokens {
    /// Only texts with added tokens differ.
    Only,
    /// Others differ, too.
    Also,
}

/// What the settings of a `tokenizer.json` replace in a specification that was made from keys.
pub(crate) struct Settings {
    pub(crate) steps: Vec<Step>,
    pub(crate) normalizer_steps: usize,
    pub(crate) added_token_options: HashMap<u32, AddedTokenOptions>,
    pub(crate) add_space_prefix: bool,
    pub(crate) pair: Option<PairFormat>,
}

/// Returns the settings of the file `tokenizer`, of which `spec` is the specification.
///
/// # Errors
/// `Format` for an invalid file.
pub(super) fn text_of(tokenizer: &str, spec: &TokenizerSpec<'_>) -> Result<String> {
    let parts: Parts = serde_json::from_str(tokenizer)
        .map_err(|e| Error::new(ErrorKind::Format, format!("tokenizer.json: {e}")))?;
    let mut ids: Vec<_> = spec.added_token_options.iter().collect();
    ids.sort_by_key(|(id, _)| **id);
    let added = ids.into_iter().map(|(id, options)| {
        json!({
            "id": id, "content": spec.tokens[*id as usize], "lstrip": options.lstrip, "rstrip": options.rstrip,
            "single_word": options.single_word, "normalized": options.normalized,
        })
    });
    let settings = json!({
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": parts.normalizer,
        "pre_tokenizer": parts.pre_tokenizer,
        "post_processor": post_processor(spec),
        "model": { "max_input_chars_per_word": parts.model.max_input_chars_per_word, "vocab": {} },
    });
    Ok(settings.to_string())
}

/// Returns the template of a pair of texts; keys say what is added to one text.
fn post_processor(spec: &TokenizerSpec<'_>) -> Value {
    let Some(pair) = &spec.pair else {
        return Value::Null;
    };
    let special = |ids: &[u32]| -> Vec<Value> {
        let ids = ids.iter();
        ids.map(|id| json!({ "SpecialToken": { "id": id.to_string(), "type_id": 0 } }))
            .collect()
    };
    let text =
        |name: &str, type_id: u32| vec![json!({ "Sequence": { "id": name, "type_id": type_id } })];
    let template = [
        special(&pair.before),
        text("A", 0),
        special(&pair.between),
        text("B", pair.second_type),
        special(&pair.after),
    ];
    let ids = pair
        .ids()
        .map(|id| (id.to_string(), json!({ "ids": [id] })));
    json!({
        "type": "TemplateProcessing", "single": text("A", 0), "pair": template.concat(),
        "special_tokens": ids.collect::<Map<_, _>>(),
    })
}

impl Settings {
    /// Reads the settings, for a vocabulary of `tokens` tokens. `model` gets the options of the model.
    ///
    /// # Errors
    /// `Format` for invalid settings or ids, `Unsupported` for an unknown component.
    pub(crate) fn read(text: &str, tokens: usize, model: &mut ModelSpec<'_>) -> Result<Self> {
        let file = read(text)?;
        let pipeline = file.pipeline()?;
        let (_, _, pair) = file.added_ids(tokens)?;
        let added_token_options = file.added_token_options();
        if let Some(id) = added_token_options
            .keys()
            .find(|id| **id as usize >= tokens)
        {
            bail!(Format, "added token {id} is not in the vocabulary");
        }
        if let ModelSpec::WordPiece { word_chars_max } = model {
            *word_chars_max = file.word_chars_max();
        }
        Ok(Self {
            add_space_prefix: pipeline.adds_space_prefix(),
            normalizer_steps: pipeline.normalizer_steps,
            steps: pipeline.steps,
            added_token_options,
            pair,
        })
    }
}

/// Replaces the normalizer and the pre-tokenizer of a `tokenizer.json` by those of settings.
pub(super) fn replace_pipeline(file: &mut Value, settings: &str) {
    let settings: Value = serde_json::from_str(settings).unwrap_or_default();
    for part in ["normalizer", "pre_tokenizer"] {
        if let Some(value) = settings.get(part) {
            file[part] = value.clone();
        }
    }
}

/// Names the settings of a file that keys may not express: options of added tokens, otherwise also the other
/// components.
pub(super) fn named(tokenizer: &str, spec: &TokenizerSpec<'_>, added: AddedTokens) -> String {
    let mut parts = Vec::new();
    for (name, is_set) in OPTIONS {
        let with = spec.added_token_options.iter();
        let mut ids: Vec<u32> = with.filter(|(_, o)| is_set(o)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        let mut tokens: Vec<String> = ids
            .iter()
            .take(NAMED_MAX)
            .map(|id| format!("{:?}", spec.tokens[*id as usize]))
            .collect();
        if ids.len() > NAMED_MAX {
            tokens.push(format!("{} other tokens", ids.len() - NAMED_MAX));
        }
        if !tokens.is_empty() {
            parts.push(format!("{name} of {}", tokens.join(", ")));
        }
    }
    if let (Ok(file), true) = (
        serde_json::from_str::<Parts>(tokenizer),
        parts.is_empty() || added == AddedTokens::Also,
    ) {
        let components = [
            ("normalizer", file.normalizer),
            ("pre_tokenizer", file.pre_tokenizer),
            ("post_processor", file.post_processor),
        ];
        for (part, value) in components {
            let mut types = Vec::new();
            component_types(&value, &mut types);
            if !types.is_empty() {
                parts.push(format!("{part} {}", types.join(", ")));
            }
        }
    }
    parts.join("; ")
}

/// Appends the types of a component and of those in it.
fn component_types(component: &Value, types: &mut Vec<String>) {
    for list in ["normalizers", "pretokenizers", "processors"] {
        if let Some(parts) = component.get(list).and_then(Value::as_array) {
            return parts.iter().for_each(|part| component_types(part, types));
        }
    }
    let kind = component.get("type").and_then(Value::as_str);
    types.extend(kind.map(str::to_string));
}
