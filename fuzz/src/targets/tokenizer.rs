//! Texts that tokenizers of every kind encode and decode again.

use super::choices::Choices;
use super::text::text;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::OnceLock;
use tabla::Source;
use tabla::text::{DecodeOptions, EncodeOptions, Section, SpecialTokens, Tokenizer};

/// Files of `tokenizers` with whether decoding returns each text.
const FILES: [(&str, bool); 5] = [
    (
        include_str!("../../../tests/golden/tokenizers/byte_level.json"),
        false,
    ), // composes characters
    (
        include_str!("../../../tests/golden/tokenizers/spm_bpe.json"),
        true,
    ),
    (
        include_str!("../../../tests/golden/tokenizers/unigram.json"),
        false,
    ),
    (
        include_str!("../../../tests/golden/tokenizers/unigram_rules.json"),
        false,
    ),
    (
        include_str!("../../../tests/golden/tokenizers/wordpiece.json"),
        false,
    ),
];

/// A tokenizer, its copy from the sections of compiled models, and whether decoding returns each text.
struct Case {
    built: Tokenizer,
    reopened: Tokenizer,
    is_lossless: bool,
}

impl Case {
    fn of((built, is_lossless): (Tokenizer, bool)) -> Self {
        let sections: HashMap<_, _> = built.sections().into_iter().collect();
        let section = |name: &str| Some(Section::aligned_copy(sections.get(name)?));
        Self {
            reopened: Tokenizer::from_sections(section).expect("its sections"),
            built,
            is_lossless,
        }
    }
}

fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| {
        let story = tabla::tools::load_tokenizer(&Source::BuiltIn).expect("a tokenizer");
        let built = |text: &str| Tokenizer::from_json(text, None).expect("a tokenizer");
        // Without its normalizer, byte-level BPE encodes all bytes.
        let mut json: Value = serde_json::from_str(FILES[0].0).expect("JSON");
        json["normalizer"] = Value::Null;
        let mut cases: Vec<_> = FILES
            .iter()
            .map(|(text, is_lossless)| (built(text), *is_lossless))
            .collect();
        cases.extend([(story, true), (built(&json.to_string()), true)]);
        cases.into_iter().map(Case::of).collect()
    })
}

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let case = choices.pick(cases());
    let specials = *choices.pick(&[SpecialTokens::Text, SpecialTokens::Tokens]);
    let options = EncodeOptions::default()
        .add_special(choices.rarely(2))
        .specials(specials);
    let text = text(&mut choices, 40);
    let ids = case.built.encode(&text, options).expect("a short text");
    assert_eq!(
        case.reopened.encode(&text, options).expect("a short text"),
        ids,
        "{text:?}"
    );
    check_ids(&case.built, &ids);
    let decode = DecodeOptions::default()
        .from_start(true)
        .specials(SpecialTokens::Tokens);
    let decoded = case.built.decode(&ids, decode).expect("its own ids");
    assert_eq!(
        case.reopened.decode(&ids, decode).expect("its own ids"),
        decoded,
        "{text:?}"
    );
    // Encoding replaces spaces by this character, and decoding replaces it again.
    let is_plain =
        !options.add_special && specials == SpecialTokens::Text && !text.contains('\u{2581}');
    if case.is_lossless && is_plain {
        assert_eq!(String::from_utf8_lossy(&decoded), text);
        let ids = case.built.encode_continuation(&text).expect("a short text");
        let pieces: Vec<u8> = ids
            .iter()
            .flat_map(|id| case.built.token_bytes(*id))
            .copied()
            .collect();
        assert_eq!(String::from_utf8_lossy(&pieces), text, "as a continuation");
    }
    let limit = choices.below(20);
    let mut cut = ids.clone();
    case.built.truncate(&mut cut, limit);
    assert!(cut.len() <= limit.max(2) && cut.len() <= ids.len());
}

/// Checks that ids are in the vocabulary.
pub(crate) fn check_ids(tokenizer: &Tokenizer, ids: &[u32]) {
    for id in ids {
        assert!((*id as usize) < tokenizer.vocab_size(), "id {id}");
        assert!(
            tokenizer.token_bytes(*id).len() <= tokenizer.piece_bytes_max(),
            "id {id}"
        );
    }
}
