//! Tests of `tabla rerank`.

use super::{check_failure, tabla, tabla_with_input};
use serde_json::Value;
use std::path::Path;

#[test]
fn sorts_documents_by_relevance() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let folder = golden.join("reranker");
    let file = folder.join("model.gguf");
    let file = file.to_str().expect("UTF-8 path");
    let text = std::fs::read_to_string(folder.join("golden.json")).expect("a golden file");
    let golden: Value = serde_json::from_str(&text).expect("valid JSON");
    let documents = golden["documents"].as_array().expect("documents");
    let lines: Vec<String> = documents.iter().map(Value::to_string).collect();
    let query = golden["query"].as_str().expect("a string");
    let args = [
        "rerank", "-m", file, "--device", "cpu", "-q", query, "--jsonl",
    ];
    let ranked = |more: &[&str]| -> Vec<(usize, f64)> {
        let ran = tabla_with_input(&[&args[..], more].concat(), &lines.join("\n"));
        let objects = ran.text().lines().map(|line| {
            let object: Value = serde_json::from_str(line).expect("valid JSON");
            let index = object["index"].as_u64().expect("an index");
            let index = usize::try_from(index).expect("fits the type");
            (index, object["relevance_score"].as_f64().expect("a score"))
        });
        objects.collect()
    };
    let all = ranked(&["--precision", "exact"]);
    let scores = golden["ranked"][0]["scores"].as_array().expect("scores");
    assert_eq!(all.len(), scores.len());
    assert!(all.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{all:?}");
    for (index, score) in &all {
        let off = (score - scores[*index].as_f64().expect("a number")).abs();
        assert!(off < 1e-4, "{index}: {score}");
    }
    let best = ranked(&["--precision", "exact", "--top-n", "2"]);
    assert_eq!(best, all[..2]);
    let other = golden["ranked"][1]["instruction"]
        .as_str()
        .expect("a string");
    assert_ne!(
        ranked(&["--precision", "exact", "--instruction", other]),
        all
    );
}

#[test]
fn cross_encoder_ranks_documents() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/cross_encoder/bert");
    let text = std::fs::read_to_string(golden.join("golden.json")).expect("a golden file");
    let json: Value = serde_json::from_str(&text).expect("valid JSON");
    let model = golden.join("hf");
    let model = model.to_str().expect("UTF-8 path");
    let pair = |at: usize| &json["pairs"][at];
    let query = pair(0)["query"].as_str().expect("a text");
    let documents = [0, 1].map(|at| pair(at)["document"].as_str().expect("a text"));
    let args = [
        "rerank",
        "-m",
        model,
        "--device",
        "cpu",
        "--precision",
        "exact",
        "-q",
        query,
    ];
    let ran = tabla(&[&args[..], &documents].concat());
    let scores: Vec<(u64, f64)> = ran
        .text()
        .lines()
        .map(|line| {
            let object: Value = serde_json::from_str(line).expect("valid JSON");
            let score = object["relevance_score"].as_f64().expect("a score");
            (object["index"].as_u64().expect("an index"), score)
        })
        .collect();
    assert_eq!(scores.len(), 2);
    assert!(scores[0].1 > scores[1].1, "{scores:?}");
    for (index, score) in scores {
        let at = usize::try_from(index).expect("fits the type");
        // The files of this model set the identity as activation function.
        let expected = json["logits"][at][0].as_f64().expect("a number");
        assert!((score - expected).abs() < 1e-4, "{at}: {score}");
    }
    let lost = golden.join("model.gguf");
    let lost = lost.to_str().expect("UTF-8 path");
    let ran = tabla(&["rerank", "-m", lost, "--device", "cpu", "-q", query, "a"]);
    check_failure(&ran, "but not its pooler");
}

#[test]
fn rejects_models_that_are_no_rerankers() {
    let story = tabla(&["rerank", "--device", "cpu", "-q", "who", "a document"]);
    check_failure(&story, "the model is no reranker");
}
