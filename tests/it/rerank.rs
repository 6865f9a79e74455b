//! Compares reranking with `transformers`: tokens of every pair, and scores.

use crate::common::{devices, fast_devices, golden, session, story};
use serde_json::Value;
use tabla::device::Precision;
use tabla::embed::RerankOptions;
use tabla::load::LoadOptions;
use tabla::{ErrorKind, Session};

fn reference() -> Value {
    let path = golden("reranker/golden.json");
    let text = std::fs::read_to_string(path).expect("a golden file");
    serde_json::from_str(&text).expect("JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn scores_match_reference() {
    let golden_json = reference();
    let documents = golden_json["documents"].as_array().expect("documents");
    let documents: Vec<&str> = documents.iter().map(text).collect();
    let ranked = golden_json["ranked"]
        .as_array()
        .expect("a row for each instruction");
    // The GGUF file of llama.cpp contains the prompt, the folder does not.
    for form in ["model.gguf", "hf"] {
        let path = golden("reranker").join(form);
        for (device, options) in fast_devices(Precision::Exact) {
            let mut s = session(&path, &options);
            // The first row uses the default instruction.
            for (at, row) in ranked.iter().enumerate() {
                let by = RerankOptions::default()
                    .query(text(&golden_json["query"]))
                    .instruction((at > 0).then(|| text(&row["instruction"])));
                let found = s
                    .rerank(&by, &documents, &mut |_, _| {})
                    .expect("reranking succeeds");
                let expected = row["scores"].as_array().expect("scores").iter();
                for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                    let expected = expected.as_f64().expect("a number");
                    let off = (f64::from(*found) - expected).abs();
                    assert!(
                        off < 2e-5,
                        "{form} on {device}: document {at}: expected {expected}, got {found}"
                    );
                }
                assert_eq!(found.len(), documents.len());
            }
        }
    }
}

#[test]
fn rejects_models_without_reranking() {
    let kind = |s: &mut Session, by: &RerankOptions<'_>| {
        let scores = s.rerank(by, &["a document"], &mut |_, _| {});
        scores.map(drop).map_err(|error| error.kind())
    };
    let by = RerankOptions::default();
    let mut s = story(LoadOptions::default());
    assert_eq!(kind(&mut s, &by), Err(ErrorKind::Unsupported));
    let path = golden("reranker/hf");
    let options = LoadOptions::default()
        .max_context(128)
        .device(tabla::load::DeviceChoice::Cpu);
    let mut s = session(&path, &options);
    assert_eq!(kind(&mut s, &by), Err(ErrorKind::TooLarge));
    s.canceller().cancel();
    assert_eq!(kind(&mut s, &by), Err(ErrorKind::Cancelled));
    let none = s
        .rerank::<&str>(&by, &[], &mut |_, _| {})
        .expect("empty result");
    assert!(none.is_empty());
}

/// Scores of documents whose prompts take several passes do not depend on the other documents.
#[test]
fn several_documents_score_as_each_alone() {
    let path = golden("reranker/model.gguf");
    let texts: Vec<String> = [1, 9, 30, 17]
        .map(|n| "The river ran on. ".repeat(n))
        .into();
    let options = RerankOptions::default().query("Where does the river run?");
    for (device, with) in devices(Precision::Exact) {
        let mut s = session(&path, &with.chunk_tokens(32));
        let scores = |s: &mut Session, texts: &[String]| {
            let scores = s.rerank(&options, texts, &mut |_, _| {});
            scores.expect("reranking succeeds")
        };
        let together = scores(&mut s, &texts);
        for (at, text) in texts.iter().enumerate() {
            s.reset();
            let alone = scores(&mut s, std::slice::from_ref(text));
            assert!(alone == together[at..=at], "{device}: document {at}");
        }
        assert!(together[1] != together[2], "{device}: {together:?}");
    }
}

/// The files of a reranker are those of a chat model, except for what names it.
#[test]
fn rerankers_are_identified() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let judge = "{# Judge whether the Document meets the requirements based on the Query #}";
    for (folder, extra, expected) in [
        ("chat", None, Err(ErrorKind::Unsupported)),
        (
            "chat-1",
            Some(("README.md", "# Chat\n")),
            Err(ErrorKind::Unsupported),
        ),
        (
            "chat-2",
            Some(("chat_template.jinja", "{{ messages }}")),
            Err(ErrorKind::Unsupported),
        ),
        ("org_qwen3-Reranker-tiny", None, Ok(1)),
        (
            "chat-3",
            Some(("README.md", "---\n\n# Qwen3-Reranker-0.6B\n")),
            Ok(1),
        ),
        ("chat-4", Some(("chat_template.jinja", judge)), Ok(1)),
    ] {
        let path = root.path().join(folder);
        std::fs::create_dir_all(&path).expect("a folder");
        for file in [
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ] {
            std::fs::copy(golden("reranker/hf").join(file), path.join(file)).expect("a copy");
        }
        if let Some((file, text)) = extra {
            std::fs::write(path.join(file), text).expect("a file");
        }
        let options = LoadOptions::default().device(tabla::load::DeviceChoice::Cpu);
        let mut s = session(&path, &options);
        let scores = s.rerank(&RerankOptions::default(), &["a"], &mut |_, _| {});
        let found = scores
            .map(|scores| scores.len())
            .map_err(|error| error.kind());
        assert_eq!(found, expected, "{folder}");
    }
}
