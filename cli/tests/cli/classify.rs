//! Tests of `tabla classify`.

use super::{check_failure, tabla, tabla_with_input};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden")
        .join(name)
}

#[test]
fn prints_labels_by_score() {
    let folder = golden("cross_encoder/xlm_roberta_labels");
    let text = std::fs::read_to_string(folder.join("golden.json")).expect("a golden file");
    let json: Value = serde_json::from_str(&text).expect("valid JSON");
    let pair = &json["pairs"][1];
    let [first, second] = ["query", "document"].map(|name| pair[name].as_str().expect("a text"));
    let model = folder.join("hf");
    let model = model.to_str().expect("UTF-8 path");
    let args = [
        "classify",
        "-m",
        model,
        "--device",
        "cpu",
        "--precision",
        "exact",
        "--pair",
        second,
    ];
    let scores = |more: &[&str]| -> Vec<(String, f64)> {
        let ran = tabla_with_input(&[&args[..], more].concat(), first);
        let object: Value = serde_json::from_str(ran.text().trim()).expect("one JSON object");
        assert_eq!(object["index"], 0);
        let list = object["scores"].as_array().expect("a list").iter();
        list.map(|entry| {
            let label = entry["label"].as_str().expect("a label").to_string();
            (label, entry["score"].as_f64().expect("a number"))
        })
        .collect()
    };
    let logits = scores(&["--logits"]);
    assert!(logits.windows(2).all(|w| w[0].1 >= w[1].1), "{logits:?}");
    for (label, logit) in &logits {
        let labels = json["labels"].as_array().expect("labels");
        let at = labels.iter().position(|known| known == label);
        let expected = &json["logits"][1][at.expect("a known label")];
        let off = logit - expected.as_f64().expect("a number");
        assert!(off.abs() < 1e-4, "{label}: {logit}");
    }
    let scores = scores(&[]);
    let names = |list: &[(String, f64)]| list.iter().map(|s| s.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&scores), names(&logits));
    let sum: f64 = scores.iter().map(|score| score.1).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");
}

#[test]
fn rejects_models_without_a_head() {
    let story = tabla(&["classify", "--device", "cpu", "a text"]);
    check_failure(&story, "no classification head");
}

#[test]
fn missing_dense_modules_are_a_warning() {
    let file = golden("arch/embedding_gemma/model_plain.gguf");
    let file = file.to_str().expect("UTF-8 path");
    for args in [
        &["inspect", file][..],
        &["embed", "-m", file, "--device", "cpu", "a text"],
    ] {
        let ran = tabla(args);
        assert!(
            ran.stderr.contains("lacks the Dense modules"),
            "{}",
            ran.stderr
        );
    }
    let whole = golden("arch/embedding_gemma/model.gguf");
    let ran = tabla(&["inspect", whole.to_str().expect("UTF-8 path")]);
    assert!(!ran.stderr.contains("Dense"), "{}", ran.stderr);
}
