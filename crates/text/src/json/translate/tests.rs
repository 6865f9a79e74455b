//! Tests of conversions between `tokenizer.json` and GGUF keys.

use super::*;
use crate::tokenizer::{EncodeOptions, SpecialTokens};
use tabla_core::error::ErrorKind;
use tabla_testkit::fixed_json;

/// A trained tokenizer with changes.
fn golden(name: &str, edit: fn(&mut Value)) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/tokenizers");
    let text = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
    let mut file = serde_json::from_str(&text).unwrap();
    edit(&mut file);
    file.to_string()
}

/// Sets the pre-tokenizer of GPT-2, which has a name.
fn as_gpt_2(file: &mut Value) {
    file["pre_tokenizer"] =
        fixed_json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": true });
    file["model"]["ignore_merges"] = json!(false);
}

/// Converts a file without a configuration, and passes the keys and the note to `use_keys`.
fn convert<R>(
    json: &str,
    use_keys: impl FnOnce(&Vocab<'_>, Option<&str>) -> Result<R>,
) -> Result<R> {
    Vocab::from_json(json, None, ModelInputs::default(), |converted| {
        use_keys(&converted.vocab, converted.note.as_deref())
    })
}

#[test]
fn round_trips_through_gguf_keys() {
    for (json, model) in [
        (golden("byte_level", as_gpt_2), "gpt2"),
        (golden("spm_bpe", |_| ()), "llama"),
    ] {
        let converted = convert(&json, |vocab, note| {
            assert_eq!((vocab.model, note), (model, None));
            assert_eq!(vocab.types.len(), vocab.tokens.len());
            vocab.to_json()
        });
        // Each conversion compares its input and output; this compares the ends.
        let [first, last] =
            [&json, &converted.unwrap()].map(|json| Tokenizer::from_json(json, None).unwrap());
        check(&first, &last).unwrap();
    }
}

#[test]
fn keys_keep_the_normalization() {
    // The file is in NFC.
    let json = golden("byte_level", as_gpt_2);
    let converted = convert(&json, |vocab, _| {
        assert_eq!(vocab.pre, Some("olmo"));
        vocab.to_json()
    });
    let converted = Tokenizer::from_json(&converted.unwrap(), None).unwrap();
    let ids = |text: &str| converted.encode(text, EncodeOptions::default()).unwrap();
    assert_eq!(ids("e\u{301}"), ids("\u{e9}"));
    let json = golden("byte_level", |file| {
        as_gpt_2(file);
        file["normalizer"] = Value::Null;
    });
    let pre = convert(&json, |vocab, _| Ok(vocab.pre == Some("gpt-2")));
    assert!(pre.unwrap());
}

/// The pre-tokenizers of files: splits, digits and bytes in a sequence.
#[test]
fn pre_tokenizers_are_detected() {
    for (name, ignore_merges) in [
        ("deepseek-llm", false),
        ("deepseek-coder", false),
        ("deepseek-v3", false),
        ("dbrx", false),
        ("smollm", false),
        ("llama-bpe", true),
        ("tekken", true),
    ] {
        let (_, pre) = pre::find(Some(name), 1).unwrap();
        let step = |regex: &&str| match *regex {
            r"\p{N}" => fixed_json!({ "type": "Digits", "individual_digits": true }),
            _ => json!({
                "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false,
            }),
        };
        let mut steps: Vec<Value> = pre.regexes.iter().map(step).collect();
        steps.push(
            fixed_json!({ "type": "ByteLevel", "add_prefix_space": false, "use_regex": false }),
        );
        let json = golden("byte_level", |_| ());
        let mut file: Value = serde_json::from_str(&json).unwrap();
        file["normalizer"] = Value::Null;
        file["pre_tokenizer"] = json!({ "type": "Sequence", "pretokenizers": steps });
        file["model"]["ignore_merges"] = json!(ignore_merges);
        let detected = convert(&file.to_string(), |vocab, _| {
            Ok(vocab.pre.map(str::to_string))
        });
        assert_eq!(detected.unwrap().as_deref(), Some(name));
    }
}

#[test]
fn rejects_tokenizers_that_keys_cannot_express() {
    let message = |name: &str, edit: fn(&mut Value)| {
        let error = convert(&golden(name, edit), |_, _| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        error.message().to_string()
    };
    // Its regex matches no known pre-tokenizer.
    let pre = message("byte_level", |_| ());
    assert!(pre.contains("no tokenizer.ggml.pre value"), "{pre}");
    for (part, edit) in [
        (
            "normalizer Prepend, Replace, Lowercase",
            (|file| {
                file["normalizer"] = json!({ "type": "Sequence", "normalizers": [
                file["normalizer"], { "type": "Lowercase" },
            ] });
            }) as fn(&mut Value),
        ),
        ("pre_tokenizer Digits", |file| {
            file["pre_tokenizer"] = fixed_json!({ "type": "Digits", "individual_digits": true });
        }),
        ("post_processor TemplateProcessing", |file| {
            let first = file["post_processor"]["single"][0].clone();
            let single = file["post_processor"]["single"].as_array_mut().unwrap();
            single.insert(0, first);
        }),
    ] {
        let refusal = message("spm_bpe", edit);
        assert!(refusal.contains(part), "{refusal}");
        assert!(refusal.ends_with("use the folder itself"), "{refusal}");
    }
}

/// Texts with white space around a token and at both ends.
const SPACED: [&str; 8] = [
    "ab <|X|>cd <|x|>",
    "ab <|x|> cd",
    "ab<|x|>\n\ncd",
    " \t<|x|>\u{a0}ab ",
    "ab\u{3000}<|x|>cd_<|x|>_",
    "  ab cd  ",
    "\n",
    "",
];

/// Converts a file, and checks the tokens of [`SPACED`] of the result. Returns the note.
fn convert_exactly(json: &str) -> Option<String> {
    let original = Tokenizer::from_json(json, None).unwrap();
    let converted = convert(json, |vocab, note| {
        let converted = Tokenizer::new(vocab)?;
        for text in SPACED {
            for specials in [SpecialTokens::Tokens, SpecialTokens::Text] {
                let options = EncodeOptions {
                    add_special: true,
                    specials,
                };
                let ids = original.encode(text, options)?;
                assert_eq!(converted.encode(text, options)?, ids, "{text:?}");
            }
        }
        assert_eq!(vocab.settings.is_some(), note.is_some());
        Ok(note.map(str::to_string))
    });
    converted.unwrap()
}

/// Adds the token `<|x|>` with an option.
fn add_token(file: &mut Value, option: &str) {
    let is_special = option != "normalized";
    let mut token = json!({ "id": 990, "content": "<|x|>", "special": is_special });
    token[option] = json!(true);
    file["added_tokens"].as_array_mut().unwrap().push(token);
}

#[test]
fn options_of_added_tokens_are_kept() {
    // Vocabularies without white space have no use for the others.
    let strips = ["lstrip", "rstrip", "single_word"];
    for (name, options) in [
        ("byte_level", &strips[..]),
        ("spm_bpe", &strips),
        ("unigram", &["single_word"]),
        ("wordpiece", &["single_word", "normalized"]),
    ] {
        for option in options {
            let json = golden(name, |_| ());
            let mut file: Value = serde_json::from_str(&json).unwrap();
            if name == "byte_level" {
                as_gpt_2(&mut file);
            }
            add_token(&mut file, option);
            let note = convert_exactly(&file.to_string()).expect("keys have no such option");
            let named = format!("{option} of \"<|x|>\"");
            assert!(note.contains(&named), "{name}: {note}");
        }
    }
}

#[test]
fn white_space_at_the_ends_is_kept() {
    for name in ["spm_bpe", "byte_level"] {
        let json = golden(name, |_| ());
        let mut file: Value = serde_json::from_str(&json).unwrap();
        if name == "byte_level" {
            as_gpt_2(&mut file);
        }
        let strip = fixed_json!({ "type": "Strip", "strip_left": true, "strip_right": true });
        file["normalizer"] =
            json!({ "type": "Sequence", "normalizers": [strip, file["normalizer"]] });
        let note = convert_exactly(&file.to_string()).expect("keys have no such normalizer");
        assert!(note.contains("normalizer Strip"), "{note}");
    }
}

/// The character map of this file keeps newlines, at which its pre-tokenizer splits.
#[test]
fn newlines_between_words_are_kept() {
    let note = convert_exactly(&golden("xlm_roberta", |_| ())).expect("keys know spaces only");
    assert!(note.contains("pre_tokenizer WhitespaceSplit"), "{note}");
}

#[test]
fn options_of_added_tokens_round_trip() {
    let json = golden("spm_bpe", |file| {
        add_token(file, "rstrip");
        file["normalizer"] = json!({ "type": "Sequence", "normalizers": [
            { "type": "Strip", "strip_left": true, "strip_right": true }, file["normalizer"],
        ] });
    });
    let back = convert(&json, |vocab, _| vocab.to_json()).unwrap();
    let [first, last] = [&json, &back].map(|json| Tokenizer::from_json(json, None).unwrap());
    check(&first, &last).unwrap();
}

/// The keys have the values that llama.cpp's converter writes.
#[test]
fn keys_of_encoders() {
    let inputs = ModelInputs {
        token_type_count: Some(2),
        is_encoder: true,
    };
    let json = golden("wordpiece", |file| {
        let text =
            |name: &str, type_id: u32| json!({ "Sequence": { "id": name, "type_id": type_id } });
        let token = |name: &str| json!({ "SpecialToken": { "id": name, "type_id": 0 } });
        let [cls, sep] = ["[CLS]", "[SEP]"].map(token);
        file["post_processor"]["pair"] = json!([cls, text("A", 0), sep, text("B", 1), sep]);
    });
    let config = r#"{ "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]" }"#;
    Vocab::from_json(&json, Some(config), inputs, |converted| {
        let vocab = &converted.vocab;
        assert_eq!(converted.note, None);
        let file: Value = serde_json::from_str(&json).unwrap();
        for (token, id) in file["model"]["vocab"].as_object().unwrap() {
            let expected = match token.strip_prefix("##") {
                _ if token.starts_with('[') && token.len() > 3 => token.clone(),
                Some(rest) => rest.to_string(),
                None => format!("\u{2581}{token}"),
            };
            let id = usize::try_from(id.as_u64().unwrap()).unwrap();
            assert_eq!(vocab.tokens[id], expected);
        }
        let id = |token: &str| {
            let at = vocab.tokens.iter().position(|other| *other == token);
            at.and_then(|at| u32::try_from(at).ok())
        };
        assert_eq!(vocab.model, "bert");
        assert_eq!(
            [vocab.bos, vocab.eos, vocab.sep],
            ["[CLS]", "[SEP]", "[SEP]"].map(id)
        );
        assert_eq!(
            [vocab.unk, vocab.pad, vocab.mask],
            ["[UNK]", "[PAD]", "[MASK]"].map(id)
        );
        assert_eq!(
            [vocab.add_bos, vocab.add_eos, vocab.add_sep],
            [true, true, false].map(Some)
        );
        assert_eq!([vocab.lowercase, vocab.strip_accents], [Some(true); 2]);
        assert_eq!(vocab.token_type_count, Some(2));
        Ok(())
    })
    .unwrap();
    let cased = golden("wordpiece", |file| {
        file["normalizer"]["lowercase"] = json!(false);
    });
    let flags = convert(&cased, |vocab, _| {
        Ok([vocab.lowercase, vocab.strip_accents])
    });
    assert_eq!(flags.unwrap(), [Some(false); 2]);
    let model = convert(&golden("xlm_roberta", |_| ()), |vocab, _| {
        assert!(!vocab.precompiled_charsmap.is_empty());
        assert_eq!(vocab.remove_extra_whitespaces, Some(true));
        Ok(vocab.model.to_string())
    });
    assert_eq!(model.unwrap(), "t5");
}

#[test]
fn converts_scores_to_merges() {
    let vocab = Vocab {
        tokens: vec!["a", "b", "c", "ab", "bc", "abc"],
        scores: vec![0.0, 0.0, 0.0, -2.0, -1.0, -3.0],
        model: "llama",
        ..Vocab::default()
    };
    let merges = vocab.merges_by_score(&vocab.spec().unwrap());
    assert_eq!(merges[..2], [["b", "c"], ["a", "b"]], "the best first");
    assert_eq!(
        merges[2..],
        [["a", "bc"], ["ab", "c"]],
        "then of earlier tokens"
    );
}
