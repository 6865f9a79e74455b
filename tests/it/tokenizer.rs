//! Tokenizers of real models: llama.cpp's vectors, and what `transformers` gave for whole prompts.
//!
//! Needs `TABLA_TESTDATA`, the folder that its README describes; without it the tests say so and pass.

use crate::common::{skip, testdata};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use tabla::text::{Decode, Encode, Specials, Tokenizer};

/// A file as it is, or unpacked from `.xz` beside it.
fn unpacked(path: &Path) -> Option<PathBuf> {
    if path.exists() {
        return Some(path.to_owned());
    }
    let packed = PathBuf::from(format!("{}.xz", path.display()));
    let name = path.file_name()?.to_str()?;
    let out = std::env::temp_dir().join(format!("tabla-{}-{name}", std::process::id()));
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
        let ids = tokenizer.encode(text, Encode::default()).expect("text");
        assert_eq!(ids, expected, "{} {text:?}", vocab.display());
        let options = Decode {
            from_start: true,
            specials: Specials::Tokens,
        };
        let bytes = tokenizer
            .decode(&ids, options)
            .expect("ids of the vocabulary");
        assert_eq!(bytes, text.as_bytes(), "{}", vocab.display());
        cases += 1;
    }
    cases
}

#[test]
fn vectors_of_llama_cpp() {
    let Some(folder) = testdata("") else {
        return;
    };
    let mut tested = 0;
    // WordPiece is not built by this tokenizer.
    let names = ["gpt-2", "llama-bpe", "qwen2", "llama-spm", "gemma-4"];
    for (name, least) in names.iter().zip([47, 47, 47, 47, 46]) {
        let vocab = folder.join(format!("vocab/ggml-vocab-{name}.gguf"));
        let Some(file) = unpacked(&vocab) else {
            continue;
        };
        let cases = check_vectors(&vocab, &file);
        if file != vocab {
            std::fs::remove_file(&file).unwrap();
        }
        assert!(cases >= least, "{name}: vectors are missing");
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
            let options = Encode {
                add_special: marked,
                specials: Specials::Tokens,
            };
            assert_eq!(
                tokenizer.encode(text, options).unwrap(),
                expected,
                "{model} {text:?}"
            );
        }
    }
}
