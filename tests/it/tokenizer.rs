//! Tokenizers of real models: llama.cpp's vectors, and what `transformers` gave for whole prompts.
//! Tokenizers trained by the reference libraries, and what they gave for random texts.
//!
//! Real ones need `TABLA_TESTDATA`, the folder that its README describes; without it their tests say
//! so and pass.

use crate::common::{golden, skip, testdata};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use tabla::text::{DecodeOptions, EncodeOptions, SpecialTokens, Tokenizer, Vocab, VocabKind};

/// A file as it is, or unpacked from `.xz` beside it.
pub(crate) fn unpacked(path: &Path) -> Option<PathBuf> {
    if path.exists() {
        return Some(path.to_owned());
    }
    let packed = PathBuf::from(format!("{}.xz", path.display()));
    let name = path.file_name()?.to_str()?;
    // Several tests unpack the same file at once.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let out = std::env::temp_dir().join(format!("tabla-{}-{count}-{name}", std::process::id()));
    let file = std::fs::File::create(&out).ok()?;
    let done = Command::new("xz")
        .arg("-dc")
        .arg(&packed)
        .stdout(file)
        .status();
    if done.is_ok_and(|status| status.success()) {
        return Some(out);
    }
    skip(&format!(
        "{name}: no xz, or nothing at {}",
        packed.display()
    ));
    None
}

fn tokenizer(path: &Path) -> tabla::error::Result<Tokenizer> {
    tabla::load_tokenizer(&tabla::Source::Path(path.to_owned()))
}

/// Every text of the `.inp` gives the ids of the `.out`, and comes back. Returns how many there were.
fn check_vectors(vocab: &Path, file: &Path) -> usize {
    let tokenizer = tokenizer(file).expect("a sound vocabulary");
    let read = |end: &str| std::fs::read_to_string(format!("{}.{end}", vocab.display()));
    let (texts, lines) = (read("inp").expect("texts"), read("out").expect("ids"));
    let mut cases = 0;
    // The last text is empty and so is its line.
    for (text, line) in texts
        .split("\n__ggml_vocab_test__\n")
        .zip(lines.split('\n'))
    {
        let expected: Vec<u32> = line
            .split_whitespace()
            .map(|id| id.parse().expect("an id"))
            .collect();
        let ids = tokenizer
            .encode(text, EncodeOptions::default())
            .expect("text");
        assert_eq!(ids, expected, "{} {text:?}", vocab.display());
        let options = DecodeOptions {
            from_start: true,
            specials: SpecialTokens::Tokens,
        };
        let bytes = tokenizer
            .decode(&ids, options)
            .expect("ids of the vocabulary");
        // WordPiece keeps neither spaces nor capitals.
        if tokenizer.kind() != VocabKind::Bert {
            assert_eq!(bytes, text.as_bytes(), "{}", vocab.display());
        }
        cases += 1;
    }
    cases
}

/// Vocabularies of llama.cpp, and how many vectors each has at least.
const VOCABULARIES: [(&str, usize); 6] = [
    ("gpt-2", 47),
    ("llama-bpe", 47),
    ("qwen2", 47),
    ("llama-spm", 47),
    ("gemma-4", 46),
    ("bert-bge", 47),
];

#[test]
fn vectors_of_llama_cpp() {
    let Some(folder) = testdata("") else {
        return;
    };
    let mut tested = 0;
    for (name, least) in &VOCABULARIES {
        let vocab = folder.join(format!("vocab/ggml-vocab-{name}.gguf"));
        let Some(file) = unpacked(&vocab) else {
            continue;
        };
        let cases = check_vectors(&vocab, &file);
        if file != vocab {
            std::fs::remove_file(&file).unwrap();
        }
        assert!(cases >= *least, "{name}: vectors are missing");
        tested += 1;
    }
    assert!(tested > 0, "no vocabulary at all");
}

fn ids(value: &Value) -> Vec<u32> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(|id| u32::try_from(id.as_u64()?).ok())
        .collect()
}

/// Prompts, and one chat as its template rendered it, in whole models.
#[test]
fn prompts_of_whole_models() {
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
        let tokenizer = tokenizer(&folder.join(model)).unwrap();
        let golden: Value =
            serde_json::from_slice(&std::fs::read(folder.join(golden)).unwrap()).unwrap();
        let cases = golden["cases"].as_array().expect("cases");
        assert!(!cases.is_empty());
        for case in cases {
            let expected = ids(&case["ids"]);
            let chat = case["rendered"].as_str();
            let text = chat.or(case["prompt"].as_str()).expect("a text");
            // BOS stands in the ids where the model adds it, and a chat spells its own.
            let marked = chat.is_none() && expected.first().copied() == tokenizer.bos();
            let options = EncodeOptions {
                add_special: marked,
                specials: SpecialTokens::Tokens,
            };
            assert_eq!(
                tokenizer.encode(text, options).unwrap(),
                expected,
                "{model} {text:?}"
            );
        }
    }
}

/// The tokenizer of a folder of Hugging Face, whose largest file may be packed.
fn folder_tokenizer(folder: &Path) -> Option<Tokenizer> {
    let file = unpacked(&folder.join("tokenizer.json"))?;
    let read = |path: &Path| std::fs::read_to_string(path).expect("a file of text");
    let (json, config) = (read(&file), read(&folder.join("tokenizer_config.json")));
    if !file.starts_with(folder) {
        std::fs::remove_file(&file).expect("made here");
    }
    Some(Tokenizer::from_json(&json, Some(&config)).expect("a sound tokenizer"))
}

/// Ids, ids with what goes in front and behind, and text of each vector. Returns how many there were.
fn check_json(tokenizer: &Tokenizer, vectors: &Path, is_decoded: impl Fn(&Value) -> bool) -> usize {
    let vectors = std::fs::read_to_string(vectors).expect("vectors");
    let vectors: Vec<Value> = serde_json::from_str(&vectors).expect("a list");
    let options = |add_special| EncodeOptions {
        add_special,
        specials: SpecialTokens::Tokens,
    };
    for case in &vectors {
        let text = case["text"].as_str().expect("a text");
        let expected = ids(&case["ids"]);
        let found = tokenizer.encode(text, options(false));
        assert_eq!(found.expect("text"), expected, "{text:?}");
        if case["ids_special"].is_array() {
            let found = tokenizer.encode(text, options(true)).expect("text");
            assert_eq!(found, ids(&case["ids_special"]), "{text:?}");
        }
        if is_decoded(case) {
            let start = DecodeOptions {
                from_start: true,
                specials: SpecialTokens::Text,
            };
            let found = tokenizer.decode_lossy(&expected, start).expect("ids");
            assert_eq!(found, case["decoded"].as_str().unwrap_or(text));
        }
    }
    vectors.len()
}

#[test]
fn vectors_of_transformers() {
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
    assert!(tested > 0, "no tokenizer at all");
}

#[test]
fn trained_tokenizers_give_the_ids_of_their_libraries() {
    for name in [
        "byte_level",
        "spm_bpe",
        "unigram",
        "unigram_rules",
        "wordpiece",
    ] {
        let path = |end: &str| golden(&format!("tokenizers/{name}.{end}"));
        let json = std::fs::read_to_string(path("json")).expect("a tokenizer");
        let tokenizer = Tokenizer::from_json(&json, None).expect("a sound tokenizer");
        let is_decoded = |_: &Value| tokenizer.kind() != VocabKind::Bert;
        let cases = check_json(&tokenizer, &path("vectors.json"), is_decoded);
        assert!(cases >= 100, "{name}: {cases}");
    }
}

/// The keys that a GGUF file of the same vocabulary has, against `SentencePiece` itself.
#[test]
fn trained_vocabularies_give_the_ids_of_sentencepiece() {
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
        .expect("a sound vocabulary");
        assert!(list("vectors").len() >= 100);
        for case in list("vectors") {
            let text = case["text"].as_str().expect("a text");
            let found = tokenizer
                .encode(text, EncodeOptions::default())
                .expect("text");
            assert_eq!(found, ids(&case["ids"]), "{name} {text:?}");
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "scores are f32 in files")]
fn number(value: &Value) -> f32 {
    value.as_f64().expect("a number") as f32
}

/// Texts of all of Unicode: plain letters, any character, and those that trouble tokenizers.
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
            // A visible space comes back as a space, by the format.
            .filter(|c| *c != '▁')
            .collect()
    })
}

fn check_round_trip(tokenizer: &Tokenizer, name: &str) {
    for text in unicode(0x7ab1a, 2000) {
        let ids = tokenizer
            .encode(&text, EncodeOptions::default())
            .expect("text");
        let start = DecodeOptions {
            from_start: true,
            specials: SpecialTokens::Tokens,
        };
        let bytes = tokenizer.decode(&ids, start).expect("ids");
        assert_eq!(bytes, text.as_bytes(), "{name} {text:?} {ids:?}");
    }
}

#[test]
fn every_text_comes_back() {
    let json = std::fs::read_to_string(golden("tokenizers/spm_bpe.json")).expect("a tokenizer");
    check_round_trip(
        &Tokenizer::from_json(&json, None).expect("sound"),
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
            check_round_trip(&tokenizer(&file).expect("a sound vocabulary"), name);
            if file != vocab {
                std::fs::remove_file(&file).expect("made here");
            }
        }
    }
}
