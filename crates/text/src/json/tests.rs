//! Tests of `tokenizer.json` with small synthetic files. Trained ones are tested in
//! `tests/it/tokenizer.rs`.

use crate::{DecodeOptions, EncodeOptions, SpecialTokens, Tokenizer, VocabKind};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tabla_core::error::{ErrorKind, Result};
use tabla_testkit::fixed_json;

/// A BPE file with `▁` and byte fallback, like that of Llama 2.
fn file(edit: impl FnOnce(&mut Value)) -> String {
    let mut vocab =
        fixed_json!({ "<unk>": 0, "<s>": 1, "▁": 2, "a": 3, "b": 4, "ab": 5, "▁ab": 6 });
    for byte in 0..256 {
        vocab[format!("<0x{byte:02X}>")] = json!(7 + byte);
    }
    let token = |id: u32, text: &str| json!({ "id": id, "content": text, "special": true });
    let mut file = json!({
        "added_tokens": [token(0, "<unk>"), token(1, "<s>"), token(263, "<|end|>")],
        "normalizer": { "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        ] },
        "pre_tokenizer": null,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{ "SpecialToken": { "id": "<s>" } }, { "Sequence": { "id": "A" } }],
            "special_tokens": { "<s>": { "id": "<s>", "ids": [1] } },
        },
        "model": {
            "type": "BPE", "vocab": vocab, "merges": ["a b", "▁ ab"],
            "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
        },
    });
    edit(&mut file);
    file.to_string()
}

/// A tokenizer that splits by a regex and encodes bytes.
fn split_by(regex: &str) -> Result<Tokenizer> {
    let chars = crate::bytelevel::CHARS;
    let vocab = chars
        .iter()
        .enumerate()
        .map(|(n, c)| (c.to_string(), json!(n)));
    let json = json!({
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated" },
            { "type": "ByteLevel", "add_prefix_space": false, "use_regex": false },
        ] },
        "model": { "vocab": vocab.collect::<serde_json::Map<_, _>>(), "merges": [] },
    });
    Tokenizer::from_json(&json.to_string(), None)
}

fn open(edit: impl FnOnce(&mut Value)) -> Result<Tokenizer> {
    Tokenizer::from_json(&file(edit), None)
}

fn refused(edit: impl FnOnce(&mut Value)) -> (ErrorKind, String) {
    let error = open(edit).map(drop).unwrap_err();
    (error.kind(), error.message().to_owned())
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let ids = tokenizer.encode(text, EncodeOptions::default()).unwrap();
    let opened = crate::tests::reopened(tokenizer);
    assert_eq!(opened.encode(text, EncodeOptions::default()).unwrap(), ids);
    ids
}

#[test]
fn matches_tokenizers_library() {
    let t = open(|_| {}).unwrap();
    assert_eq!((t.kind(), t.vocab_size()), (VocabKind::Llama, 264));
    assert_eq!(ids(&t, "ab ab"), [6, 6]);
    assert_eq!(ids(&t, "é"), [2, 7 + 0xc3, 7 + 0xa9]);
    assert_eq!(t.encode("ab", EncodeOptions::PROMPT).unwrap(), [1, 6]);
    let start = DecodeOptions {
        from_start: true,
        specials: SpecialTokens::Text,
    };
    assert_eq!(t.decode(&[1, 6, 6, 263], start).unwrap(), b"ab ab");
    assert_eq!(t.stops(), [263]);
    // Both forms of merges are equivalent.
    let t = open(|f| f["model"]["merges"] = fixed_json!([["a", "b"], ["▁", "ab"]])).unwrap();
    assert_eq!(ids(&t, "ab ab"), [6, 6]);
}

#[test]
fn special_tokens_are_text_by_default() {
    let t = open(|f| f["added_tokens"][2]["rstrip"] = json!(true)).unwrap();
    assert!(!ids(&t, "<|end|> ab").contains(&263));
    let parse = EncodeOptions {
        add_special: false,
        specials: SpecialTokens::Tokens,
    };
    assert_eq!(t.encode("<|end|>  ab", parse).unwrap(), [263, 6]);
}

#[test]
fn normalized_tokens_are_matched_in_normalized_text() {
    // Expected ids are those of the `tokenizers` library.
    let t = open(|f| {
        f["normalizer"] = fixed_json!({ "type": "Lowercase" });
        let token = fixed_json!({ "id": 264, "content": "NewTok", "special": false, "normalized": true, "rstrip": true });
        f["added_tokens"].as_array_mut().unwrap().push(token);
    })
    .unwrap();
    let parse = EncodeOptions {
        add_special: false,
        specials: SpecialTokens::Tokens,
    };
    for (text, expected) in [
        ("ab NEWTOK  ab", &[5, 39, 264, 5][..]),
        ("NewTok", &[264]),
        (
            "AB<|END|><|end|>newtokB",
            &[5, 67, 131, 108, 117, 107, 131, 69, 263, 264, 4],
        ),
    ] {
        assert_eq!(t.encode(text, parse).unwrap(), expected, "{text:?}");
    }
}

/// The tokens of `WordPiece` get another form; that of an added token remains.
#[test]
fn added_tokens_of_word_piece_are_matched() {
    let path = "/../../tests/golden/tokenizers/wordpiece.json";
    let text = std::fs::read_to_string(format!("{}{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let token =
        fixed_json!({ "id": 900, "content": "<|x|>", "special": false, "normalized": true });
    file["added_tokens"].as_array_mut().unwrap().push(token);
    let t = Tokenizer::from_json(&file.to_string(), None).unwrap();
    let plain = EncodeOptions {
        add_special: false,
        specials: SpecialTokens::Text,
    };
    // Expected ids are those of the `tokenizers` library.
    for (text, expected) in [
        ("ab <|x|> cd", &[43, 403, 900, 45, 331][..]),
        ("ab<|X|>cd", &[43, 403, 900, 45, 331]),
        ("the<|x|>river", &[560, 900, 60, 371, 546, 339]),
        ("\u{2581}<|x|>", &[1, 900]),
    ] {
        assert_eq!(t.encode(text, plain).unwrap(), expected, "{text:?}");
    }
}

#[test]
fn reads_tokens_and_settings_from_config() {
    let open = |config: Value| Tokenizer::from_json(&file(|_| {}), Some(&config.to_string()));
    let t =
        open(fixed_json!({ "bos_token": "<s>", "eos_token": { "content": "<|end|>" } })).unwrap();
    assert_eq!((t.bos(), t.eos(), t.adds_bos()), (Some(1), Some(263), true));
    let t = open(fixed_json!({ "bos_token": "<s>", "add_bos_token": false })).unwrap();
    assert_eq!(
        (t.adds_bos(), t.encode("ab", EncodeOptions::PROMPT).unwrap()),
        (false, vec![6])
    );
    let t = open(fixed_json!({ "eos_token": "<|end|>", "add_eos_token": true })).unwrap();
    assert_eq!(t.encode("ab", EncodeOptions::PROMPT).unwrap(), [1, 6, 263]);
    let extra = fixed_json!({ "264": { "content": "<new>", "special": false } });
    let t = open(json!({ "eos_token": null, "added_tokens_decoder": extra })).unwrap();
    assert_eq!(ids(&t, "<new>"), [264]);
    assert_eq!(open(json!([])).unwrap_err().kind(), ErrorKind::Format);
}

#[test]
fn joins_pairs_by_the_post_processor() {
    let token = |id: u32, text: &str| json!([text, id]);
    let [cls, sep] = [token(1, "<s>"), token(263, "<|end|>")];
    let template = |pair: Value| {
        json!({
            "type": "TemplateProcessing", "single": [{ "Sequence": { "id": "A", "type_id": 0 } }],
            "pair": pair,
            "special_tokens": { "<|end|>": { "id": "<|end|>", "ids": [263], "tokens": ["<|end|>"] } },
        })
    };
    let end = fixed_json!({ "SpecialToken": { "id": "<|end|>", "type_id": 0 } });
    let text = |id: &str, type_id: u32| json!({ "Sequence": { "id": id, "type_id": type_id } });
    let of = |post: Value| open(|f| f["post_processor"] = post).unwrap();
    for (post, ids, types) in [
        (
            json!({ "type": "BertProcessing", "cls": cls, "sep": sep }),
            vec![1, 6, 263, 6, 263],
            vec![0, 0, 0, 1, 1],
        ),
        (
            json!({ "type": "RobertaProcessing", "cls": cls, "sep": sep, "trim_offsets": true,
                "add_prefix_space": false }),
            vec![1, 6, 263, 263, 6, 263],
            vec![0; 6],
        ),
        (
            template(json!([text("A", 0), end, text("B", 1)])),
            vec![6, 263, 6],
            vec![0, 0, 1],
        ),
    ] {
        let pair = of(post).encode_pair(["ab", "ab"], None).unwrap();
        assert_eq!((pair.ids, pair.types), (ids, types));
    }
    let t = of(template(json!([text("A", 0), end, text("B", 1), end])));
    let limited = |limit| {
        t.encode_pair(["ab ab", "ab ab ab"], Some(limit))
            .unwrap()
            .ids
    };
    assert_eq!(limited(9), [6, 6, 263, 6, 6, 6, 263]);
    assert_eq!(limited(5), [6, 6, 263, 6, 263]);
    assert_eq!(
        limited(1),
        [6, 6, 263, 263],
        "the first text is not truncated"
    );
    let none = of(Value::Null).encode_pair(["ab", "ab"], None).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Unsupported);
    let unknown = json!([text("A", 0), { "SpecialToken": { "id": "<x>", "type_id": 0 } }]);
    let (kind, message) = refused(|f| f["post_processor"] = template(unknown));
    assert_eq!(kind, ErrorKind::Format);
    assert!(message.contains("<x>"), "{message}");
}

#[test]
fn rejects_invalid_ids() {
    let (kind, message) = refused(|f| f["added_tokens"][2]["id"] = json!(1_u32 << 31));
    assert_eq!(kind, ErrorKind::TooLarge);
    assert_eq!(
        message,
        "tokenizer.json: id 2147483648 is too large for 266 tokens (limit 2097152)"
    );
    assert_eq!(
        refused(|f| f["model"]["vocab"]["a"] = json!(5000)).0,
        ErrorKind::TooLarge
    );
    assert_eq!(
        refused(|f| f["model"]["vocab"]["a"] = json!(-1)).0,
        ErrorKind::Format
    );
    let (kind, message) = refused(|f| f["model"]["vocab"]["a"] = json!(4));
    assert_eq!(
        (kind, &*message),
        (
            ErrorKind::Format,
            r#"tokenizer.json: "a" and "b" have the same id 4"#
        )
    );
    let post = |f: &mut Value| f["post_processor"]["special_tokens"]["<s>"]["ids"] = json!([999]);
    assert_eq!(refused(post).0, ErrorKind::Format);
    // Ids may have gaps.
    let t = open(|f| f["added_tokens"][2]["id"] = json!(300)).unwrap();
    assert_eq!((t.vocab_size(), t.token_bytes(280)), (301, &b""[..]));
}

#[test]
fn limits_added_tokens() {
    assert_eq!(
        refused(|f| f["added_tokens"][2]["content"] = json!("")).0,
        ErrorKind::Format
    );
    let long = "x".repeat(300);
    assert_eq!(
        refused(|f| f["added_tokens"][2]["content"] = json!(long)).0,
        ErrorKind::TooLarge
    );
    let started = Instant::now();
    let many = (0..100_001).map(|n| json!({ "id": 263 + n, "content": format!("<{n}>") }));
    let (kind, message) = refused(|f| f["added_tokens"] = many.collect());
    assert_eq!(kind, ErrorKind::Format);
    assert!(
        message.contains("a list of at most 100000 entries"),
        "{message}"
    );
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn rejects_invalid_merges() {
    // The smallest file for which the `tokenizers` library panics.
    let json = r#"{"model":{"type":"BPE","vocab":{"aa":0,"bb":1},"merges":[["aa","bb"]]}}"#;
    let error = Tokenizer::from_json(json, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tokenizer);
    assert_eq!(
        error.message(),
        r#"tokenizer.json: merge 0: "aa bb": "aabb" is not in the vocabulary"#
    );
    for merge in [json!("ab"), json!(""), json!(["", "a"]), json!("a zz")] {
        assert_eq!(
            refused(|f| f["model"]["merges"] = json!([merge])).0,
            ErrorKind::Tokenizer
        );
    }
    assert_eq!(
        refused(|f| f["model"]["merges"] = json!([["a"]])).0,
        ErrorKind::Format
    );
    assert_eq!(
        refused(|f| f["model"]["merges"] = json!([7])).0,
        ErrorKind::Format
    );
}

#[test]
fn rejects_unknown_components_by_name() {
    let (kind, message) = refused(|f| f["normalizer"] = fixed_json!({ "type": "Rot13" }));
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(
        message.starts_with("tokenizer.json: unknown variant `Rot13`, expected"),
        "{message}"
    );
    assert_eq!(
        refused(|f| f["model"]["type"] = json!("WordLevel")).0,
        ErrorKind::Unsupported
    );
    assert_eq!(
        refused(|f| f["model"]["type"] = json!("Unigram")).0,
        ErrorKind::Unsupported
    );
    let suffix = |f: &mut Value| f["model"]["end_of_word_suffix"] = json!("</w>");
    assert_eq!(refused(suffix).0, ErrorKind::Unsupported);
    let split =
        fixed_json!({ "type": "Split", "pattern": { "Regex": "(" }, "behavior": "Isolated" });
    let (kind, message) = refused(|f| f["pre_tokenizer"] = split);
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(
        message.starts_with("tokenizer.json: pre_tokenizer: \"(\": "),
        "{message}"
    );
}

#[test]
fn rejects_steps_that_grow_text_without_bound() {
    let replace = |pattern: &str, content: &str| json!({ "type": "Replace", "pattern": { "String": pattern }, "content": content });
    let with = |step: Value| refused(|f| f["normalizer"] = step).0;
    assert_eq!(with(replace("", "a")), ErrorKind::Unsupported);
    assert_eq!(with(replace("a", &"a".repeat(257))), ErrorKind::TooLarge);
    let many = vec![replace("a", "aa"); 65];
    assert_eq!(
        with(json!({ "type": "Sequence", "normalizers": many })),
        ErrorKind::Format
    );
    let t = open(|f| {
        let many = vec![replace("a", &"a".repeat(256)); 4];
        f["normalizer"] = json!({ "type": "Sequence", "normalizers": many });
    });
    let error = t
        .unwrap()
        .encode("a", EncodeOptions::default())
        .map(drop)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let mut deep = fixed_json!({ "type": "NFC" });
    for _ in 0..200 {
        deep = json!({ "type": "Sequence", "normalizers": [deep] });
    }
    assert_eq!(with(deep), ErrorKind::Format);
}

#[test]
fn hostile_regexes_terminate() {
    let started = Instant::now();
    let encode = |regex: &str, text: &str| {
        let ids = split_by(regex)?.encode(text, EncodeOptions::default());
        ids.map(|ids| ids.len())
    };
    let spaces = |count| " ".repeat(count) + "x";
    let words = r"\s+(?!\S)|\s+|\S+";
    assert_eq!(encode(words, &spaces(900_000)).unwrap(), 900_001);
    let error = encode(words, &spaces(1_100_000)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(
        encode("(a+)+$", &("a".repeat(50_000) + "b")).unwrap(),
        50_001
    );
    let error = encode("(?:x+(?!z))+[0-9]", &"x".repeat(50)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let error = split_by(r"((\w{1000}){1000}){1000}").map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn rejects_truncated_file() {
    let whole = file(|_| {});
    for end in (0..whole.len()).filter(|&end| whole.is_char_boundary(end)) {
        let error = Tokenizer::from_json(&whole[..end], None)
            .map(drop)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format, "at {end}");
    }
}
