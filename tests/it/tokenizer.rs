//! Tokenizers of real models, compared with llama.cpp's test vectors and ids of `transformers`, and
//! tokenizers trained with the reference libraries, compared with their ids of random texts.
//!
//! Tests of real models need `TABLA_TESTDATA`, the directory that its README describes. Without it
//! they are skipped with a message.

use crate::common::{golden, llama_cpp, skip, testdata};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tabla::text::{
    DecodeOptions, EncodeOptions, Section, SpecialTokens, Tokenizer, Vocab, VocabKind,
};

/// Returns the path of a file, unpacked from the `.xz` next to it if necessary.
pub(crate) fn unpacked(path: &Path) -> Option<PathBuf> {
    if path.exists() {
        return Some(path.to_owned());
    }
    let packed = PathBuf::from(format!("{}.xz", path.display()));
    let name = path.file_name()?.to_str()?;
    let mut unpacked = tempfile::Builder::new();
    let (file, out) = unpacked.suffix(name).tempfile().ok()?.keep().ok()?;
    let done = Command::new("xz")
        .arg("-dc")
        .arg(&packed)
        .stdout(file)
        .status();
    if done.is_ok_and(|status| status.success()) {
        return Some(out);
    }
    skip(&format!(
        "{name}: xz is not installed, or {} does not exist",
        packed.display()
    ));
    None
}

fn tokenizer(path: &Path) -> tabla::Result<Tokenizer> {
    tabla::tools::load_tokenizer(&tabla::Source::Path(path.to_owned()))
}

/// Opens the sections of a tokenizer, which must have the same tokens.
fn reopened(tokenizer: &Tokenizer) -> Tokenizer {
    let sections: HashMap<_, _> = tokenizer.sections().into_iter().collect();
    Tokenizer::from_sections(|name| Some(Section::aligned_copy(sections.get(name)?)))
        .expect("sections of a tokenizer")
}

/// Returns whether a tokenizer composes letters and marks (NFC).
fn normalizes(tokenizer: &Tokenizer) -> bool {
    let [letter_and_mark, composed] =
        ["e\u{301}", "\u{e9}"].map(|text| tokenizer.encode(text, EncodeOptions::default()));
    letter_and_mark.expect("text") == composed.expect("text")
}

/// Checks that each text of the `.inp` file encodes to the ids of the `.out` file and decodes to
/// itself. Returns the number of texts.
fn check_vectors(vocab: &Path, file: &Path) -> usize {
    let built = tokenizer(file).expect("a valid vocabulary");
    check_vectors_of(&built, vocab);
    check_vectors_of(&reopened(&built), vocab)
}

fn check_vectors_of(tokenizer: &Tokenizer, vocab: &Path) -> usize {
    let read = |end: &str| std::fs::read_to_string(format!("{}.{end}", vocab.display()));
    let (texts, lines) = (read("inp").expect("texts"), read("out").expect("ids"));
    let mut cases = 0;
    let normalizes = normalizes(tokenizer);
    let is_mark = |c: char| ('\u{300}'..'\u{370}').contains(&c);
    // The last text and its line are empty.
    for (text, line) in texts
        .split("\n__ggml_vocab_test__\n")
        .zip(lines.split('\n'))
    {
        // llama.cpp never normalizes.
        if normalizes && text.contains(is_mark) {
            continue;
        }
        let expected: Vec<u32> = line
            .split_whitespace()
            .map(|id| id.parse().expect("an id"))
            .collect();
        let ids = tokenizer
            .encode(text, EncodeOptions::default())
            .expect("text");
        assert_eq!(ids, expected, "{} {text:?}", vocab.display());
        let options = DecodeOptions::default()
            .from_start(true)
            .specials(SpecialTokens::Tokens);
        let bytes = tokenizer
            .decode(&ids, options)
            .expect("ids of the vocabulary");
        // WordPiece does not preserve spaces and case.
        if tokenizer.kind() != VocabKind::Bert {
            assert_eq!(bytes, text.as_bytes(), "{}", vocab.display());
        }
        cases += 1;
    }
    cases
}

/// Vocabularies of llama.cpp, and the minimum number of test vectors.
const VOCABULARIES: [(&str, usize); 6] = [
    ("gpt-2", 47),
    ("llama-bpe", 47),
    ("qwen2", 47),
    ("llama-spm", 47),
    ("gemma-4", 46),
    ("bert-bge", 47),
];

#[test]
fn matches_llama_cpp_vectors() {
    let Some(folder) = testdata("") else {
        return;
    };
    let mut tested = 0;
    for (name, min) in &VOCABULARIES {
        let vocab = folder.join(format!("vocab/ggml-vocab-{name}.gguf"));
        let Some(file) = unpacked(&vocab) else {
            continue;
        };
        let cases = check_vectors(&vocab, &file);
        if file != vocab {
            std::fs::remove_file(&file).unwrap();
        }
        assert!(cases >= *min, "{name}: only {cases} vectors");
        tested += 1;
    }
    assert!(tested > 0, "no vocabulary was tested");
}

/// Vocabularies of llama.cpp that the folder of real models lacks.
const MORE_VOCABULARIES: &[&str] = &[
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "mpt",
    "phi-3",
    "qwen35",
    "refact",
    "starcoder",
];

#[test]
fn matches_more_llama_cpp_vectors() {
    let Some(folder) = llama_cpp("") else {
        return;
    };
    for name in MORE_VOCABULARIES {
        let vocab = folder.join(format!("ggml-vocab-{name}.gguf"));
        let cases = check_vectors(&vocab, &vocab);
        assert!(cases >= 46, "{name}: only {cases} vectors");
    }
}

fn ids(value: &Value) -> Vec<u32> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(|id| u32::try_from(id.as_u64()?).ok())
        .collect()
}

/// Prompts and a rendered chat, with the tokenizers of complete models.
#[test]
fn encodes_prompts_of_complete_models() {
    let Some(folder) = testdata("") else {
        return;
    };
    for (model, golden) in [
        (
            "gguf/SmolLM2-135M-Instruct.Q4_1.gguf",
            "golden/smollm2_golden.json",
        ),
        ("gguf/stories260K.gguf", "golden/stories260K_golden.json"),
    ] {
        let built = tokenizer(&folder.join(model)).unwrap();
        let tokenizer = reopened(&built);
        let golden: Value =
            serde_json::from_slice(&std::fs::read(folder.join(golden)).unwrap()).unwrap();
        let cases = golden["cases"].as_array().expect("cases");
        assert!(!cases.is_empty());
        for case in cases {
            let expected = ids(&case["ids"]);
            let chat = case["rendered"].as_str();
            let text = chat.or(case["prompt"].as_str()).expect("a text");
            // The ids start with BOS if the model adds it; a chat template writes it itself.
            let add_special = chat.is_none() && expected.first().copied() == tokenizer.bos();
            let options = EncodeOptions::default()
                .add_special(add_special)
                .specials(SpecialTokens::Tokens);
            for tokenizer in [&built, &tokenizer] {
                assert_eq!(
                    tokenizer.encode(text, options).unwrap(),
                    expected,
                    "{model} {text:?}"
                );
            }
        }
    }
}

/// Loads the tokenizer of a Hugging Face model directory, whose largest file may be packed.
fn folder_tokenizer(folder: &Path) -> Option<Tokenizer> {
    let file = unpacked(&folder.join("tokenizer.json"))?;
    let read = |path: &Path| std::fs::read_to_string(path).expect("a file of text");
    let (json, config) = (read(&file), read(&folder.join("tokenizer_config.json")));
    if !file.starts_with(folder) {
        std::fs::remove_file(&file).expect("an unpacked file");
    }
    Some(Tokenizer::from_json(&json, Some(&config)).expect("a valid tokenizer"))
}

/// Checks the ids without and with added special tokens and the decoded text of each vector. Returns
/// the number of vectors.
fn check_json(tokenizer: &Tokenizer, vectors: &Path, is_decoded: impl Fn(&Value) -> bool) -> usize {
    let vectors = std::fs::read_to_string(vectors).expect("vectors");
    let vectors: Vec<Value> = serde_json::from_str(&vectors).expect("a list");
    let options = |add_special| {
        EncodeOptions::default()
            .add_special(add_special)
            .specials(SpecialTokens::Tokens)
    };
    let reopened = reopened(tokenizer);
    let both = |case| [(case, tokenizer), (case, &reopened)];
    for (case, tokenizer) in vectors.iter().flat_map(both) {
        let text = case["text"].as_str().expect("a text");
        let expected = ids(&case["ids"]);
        let actual = tokenizer.encode(text, options(false));
        assert_eq!(actual.expect("text"), expected, "{text:?}");
        if case["ids_special"].is_array() {
            let actual = tokenizer.encode(text, options(true)).expect("text");
            assert_eq!(actual, ids(&case["ids_special"]), "{text:?}");
        }
        if is_decoded(case) {
            let start = DecodeOptions::default()
                .from_start(true)
                .specials(SpecialTokens::Text);
            let actual = tokenizer.decode_lossy(&expected, start).expect("ids");
            assert_eq!(actual, case["decoded"].as_str().unwrap_or(text));
        }
    }
    vectors.len()
}

#[test]
fn matches_transformers_vectors() {
    let Some(testdata) = testdata("") else {
        return;
    };
    let mut tested = 0;
    for name in ["gpt2", "llama3_2", "qwen3", "gemma3", "minilm"] {
        let folder = match name {
            "minilm" => testdata.join("bert-minilm"),
            name => testdata.join("hf-tokenizers").join(name),
        };
        let Some(tokenizer) = folder_tokenizer(&folder) else {
            continue;
        };
        let vectors = testdata.join(format!("golden/tokvec/{name}.hf-ids.json"));
        let has_text = |case: &Value| case["decoded"].is_string();
        assert!(check_json(&tokenizer, &vectors, has_text) >= 47, "{name}");
        tested += 1;
    }
    assert!(tested > 0, "no tokenizer was tested");
}

#[test]
fn matches_reference_libraries() {
    for name in [
        "byte_level",
        "spm_bpe",
        "unigram",
        "unigram_rules",
        "wordpiece",
        "xlm_roberta",
    ] {
        let path = |end: &str| golden(&format!("tokenizers/{name}.{end}"));
        let json = std::fs::read_to_string(path("json")).expect("a tokenizer");
        let tokenizer = Tokenizer::from_json(&json, None).expect("a valid tokenizer");
        let is_decoded = |_: &Value| tokenizer.kind() != VocabKind::Bert;
        let cases = check_json(&tokenizer, &path("vectors.json"), is_decoded);
        assert!(cases >= 100, "{name}: {cases}");
    }
}

/// Compares tokenizers from GGUF keys with `SentencePiece`.
#[test]
fn matches_sentencepiece() {
    for name in ["spm_bpe", "unigram", "unigram_rules"] {
        let keys = std::fs::read_to_string(golden(&format!("tokenizers/{name}.keys.json")));
        let keys: Value = serde_json::from_str(&keys.expect("keys")).expect("an object");
        let list = |key: &str| keys[key].as_array().expect("a list");
        let tokenizer = Tokenizer::new(&Vocab {
            model: keys["model"].as_str().expect("a name"),
            tokens: list("tokens").iter().filter_map(Value::as_str).collect(),
            scores: list("scores").iter().map(number).collect(),
            types: ids(&keys["types"]),
            unk: Some(0),
            add_space_prefix: keys["add_space_prefix"].as_bool(),
            remove_extra_whitespaces: keys["remove_extra_whitespaces"].as_bool(),
            precompiled_charsmap: ids(&keys["charsmap"])
                .into_iter()
                .map(|byte| u8::try_from(byte).expect("a byte"))
                .collect(),
            ..Vocab::default()
        })
        .expect("a valid vocabulary");
        let reopened = reopened(&tokenizer);
        assert!(list("vectors").len() >= 100);
        for case in list("vectors") {
            let text = case["text"].as_str().expect("a text");
            for tokenizer in [&tokenizer, &reopened] {
                let actual = tokenizer.encode(text, EncodeOptions::default());
                assert_eq!(actual.expect("text"), ids(&case["ids"]), "{name} {text:?}");
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "scores are f32 in files")]
fn number(value: &Value) -> f32 {
    value.as_f64().expect("a number") as f32
}

/// Random texts of ASCII letters, arbitrary characters, and characters that are hard to tokenize.
fn unicode(seed: u64, count: usize) -> impl Iterator<Item = String> {
    // Marsaglia's xorshift64.
    let mut state = seed;
    let mut next = move |below: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state >> 33).expect("31 bits") % below
    };
    let odd: Vec<char> = " \t\r\n\0'<|>_#\u{301}\u{200d}\u{fe0f}\u{a0}\u{3000}\u{feff}\u{fffd}"
        .chars()
        .collect();
    (0..count).map(move |_| {
        let length = next(40);
        (0..length)
            .filter_map(|_| match next(4) {
                0 => char::from_u32(u32::from(b'a') + next(26)),
                1 => odd.get(next(19) as usize).copied(),
                2 => char::from_u32(next(0x3000)),
                _ => char::from_u32(next(0x11_0000)),
            })
            // `▁` decodes to a space in this format.
            .filter(|c| *c != '▁')
            .collect()
    })
}

fn check_round_trip(tokenizer: &Tokenizer, name: &str) {
    for text in unicode(0x7ab1a, 2000) {
        let ids = tokenizer
            .encode(&text, EncodeOptions::default())
            .expect("text");
        let start = DecodeOptions::default()
            .from_start(true)
            .specials(SpecialTokens::Tokens);
        let bytes = tokenizer.decode(&ids, start).expect("ids");
        assert_eq!(bytes, text.as_bytes(), "{name} {text:?} {ids:?}");
    }
}

#[test]
fn random_texts_round_trip() {
    let json = std::fs::read_to_string(golden("tokenizers/spm_bpe.json")).expect("a tokenizer");
    check_round_trip(
        &Tokenizer::from_json(&json, None).expect("a valid tokenizer"),
        "spm_bpe",
    );
    let Some(folder) = testdata("") else {
        return;
    };
    for name in ["gpt2", "llama3_2", "gemma3"] {
        if let Some(tokenizer) = folder_tokenizer(&folder.join("hf-tokenizers").join(name)) {
            check_round_trip(&tokenizer, name);
        }
    }
    for (name, _) in VOCABULARIES.iter().filter(|(name, _)| *name != "bert-bge") {
        let vocab = folder.join(format!("vocab/ggml-vocab-{name}.gguf"));
        if let Some(file) = unpacked(&vocab) {
            let tokenizer = tokenizer(&file).expect("a valid vocabulary");
            assert_eq!(normalizes(&tokenizer), *name == "qwen2", "{name}");
            if !normalizes(&tokenizer) {
                check_round_trip(&tokenizer, name);
            }
            if file != vocab {
                std::fs::remove_file(&file).expect("an unpacked file");
            }
        }
    }
}
