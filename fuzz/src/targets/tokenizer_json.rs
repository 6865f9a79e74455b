//! Files `tokenizer.json` with changed values.

use super::choices::Choices;
use super::errors::{accepted, check};
use super::json_edits;
use super::text::text;
use super::tokenizer::check_ids;
use serde_json::Value;
use std::sync::OnceLock;
use tabla::text::{DecodeOptions, EncodeOptions, Tokenizer};

macro_rules! files {
    ($($name:literal)*) => {
        [$(include_str!(concat!("../../../tests/golden/", $name))),*]
    };
}

const FILES: [&str; 7] = files!(
    "tokenizers/byte_level.json" "tokenizers/spm_bpe.json" "tokenizers/unigram.json" "tokenizers/unigram_rules.json"
    "tokenizers/wordpiece.json" "arch/llama/hf/tokenizer.json" "arch/bert/hf/tokenizer.json"
);
/// Number of tokens and merges that are kept, so that changes reach other parts too.
const TOKENS: usize = 300;

fn files() -> &'static [Value] {
    static ALL: OnceLock<Vec<Value>> = OnceLock::new();
    ALL.get_or_init(|| {
        FILES
            .iter()
            .map(|text| serde_json::from_str(text).expect("JSON"))
            .collect()
    })
}

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut json = choices.pick(files()).clone();
    let text = text(&mut choices, 12);
    let parts = [
        "normalizer",
        "pre_tokenizer",
        "post_processor",
        "decoder",
        "model",
        "added_tokens",
    ];
    // Vocabularies are most of a file.
    match choices.below(8) {
        at if at < parts.len() => json_edits::edit(&mut json[parts[at]], &mut choices),
        6 => swap_parts(&mut json, &parts, &mut choices),
        _ => json_edits::edit(&mut json, &mut choices),
    }
    let file = json.to_string();
    let Some(tokenizer) = accepted(file.len(), || Tokenizer::from_json(&file, None)) else {
        return;
    };
    assert!(tokenizer.vocab_size() >= TOKENS.min(tokenizer.vocab_size()));
    for text in [&*text, "the cat</s> \u{e9}\u{4f60}<|end|>1"] {
        match tokenizer.encode(text, EncodeOptions::PROMPT) {
            Ok(ids) => {
                check_ids(&tokenizer, &ids);
                tokenizer
                    .decode(&ids, DecodeOptions::default())
                    .expect("its own ids");
            }
            Err(error) => check(&error),
        }
    }
}

/// Takes parts of other files.
fn swap_parts(json: &mut Value, parts: &[&str], choices: &mut Choices<'_>) {
    while !choices.is_empty() {
        let part = *choices.pick(parts);
        json[part] = choices.pick(files())[part].clone();
        if choices.rarely(2) {
            let most = choices.below(16);
            json_edits::edit(&mut json[part], &mut Choices::new(choices.bytes(most)));
        }
    }
}
