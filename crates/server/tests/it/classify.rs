//! Classification and reranking with cross-encoders, compared with the reference.

use crate::client::{TestServer, config};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tabla::Source;
use tabla::device::Precision;
use tabla_testkit::fixed_json;

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/cross_encoder")
        .join(name)
}

/// Starts a server with a checkpoint. Returns it with the reference output.
fn serve(name: &str) -> (TestServer, Value) {
    let text = std::fs::read_to_string(golden(name).join("golden.json")).expect("a golden file");
    let mut config = config();
    config.models[0].source = Source::from(&golden(name).join("hf"));
    config.models[0].chat_template = None;
    config.load = config.load.precision(Precision::Exact);
    (
        TestServer::with(config),
        serde_json::from_str(&text).expect("valid JSON"),
    )
}

/// Checks that two lists of numbers differ by at most 1e-4.
fn check_close(found: &Value, expected: &Value) {
    let numbers = |list: &Value| -> Vec<f64> {
        let list = list.as_array().expect("a list").iter();
        list.map(|x| x.as_f64().expect("a number")).collect()
    };
    let (found, expected) = (numbers(found), numbers(expected));
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() < 1e-4, "{found:?}, expected {expected:?}");
    }
}

#[test]
fn labels_are_predicted() {
    let (server, golden) = serve("xlm_roberta_labels");
    let listed = server.get("/v1/models").json();
    let capabilities = &listed["data"][0]["capabilities"];
    assert_eq!(capabilities, &fixed_json!(["classification"]));

    // The tokens of a pair, so that the logits are those of the reference.
    let pair = &golden["pairs"][0];
    let request = json!({ "input": [pair["tokens"], "the sun"], "use_activation": false });
    let answer = server.post("/classify", &request).json();
    assert_eq!(answer["object"], "list");
    check_close(&answer["data"][0]["probs"], &golden["logits"][0]);
    let request = fixed_json!({ "input": "the sun" });
    let one = server.post("/v1/classify", &request).json();
    let row = &one["data"][0];
    assert_eq!((&row["index"], &row["num_classes"]), (&json!(0), &json!(3)));
    let probs: Vec<f64> = serde_json::from_value(row["probs"].clone()).expect("numbers");
    assert!((probs.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{probs:?}");
    let best = (0..3).max_by(|a, b| probs[*a].total_cmp(&probs[*b]));
    assert_eq!(row["label"], golden["labels"][best.expect("labels")]);
    let tokens = one["usage"]["prompt_tokens"].as_u64().expect("a number");
    assert!(
        tokens > 2 && one["usage"]["total_tokens"] == tokens,
        "{one}"
    );

    let texts = [&pair["query"], &pair["document"]];
    let request = json!({ "inputs": texts, "raw_scores": true });
    let list = server.post("/predict", &request).json();
    let list = list.as_array().expect("a list");
    let scores: Vec<f64> = list
        .iter()
        .map(|p| p["score"].as_f64().expect("a number"))
        .collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    for entry in list {
        let labels = golden["labels"].as_array().expect("labels");
        let at = labels.iter().position(|label| *label == entry["label"]);
        let expected = &golden["logits"][0][at.expect("a known label")];
        check_close(&json!([entry["score"]]), &json!([expected]));
    }
    let request = json!({ "inputs": [texts, ["the sun"]] });
    let batch = server.post("/predict", &request).json();
    assert_eq!(batch.as_array().map(Vec::len), Some(2));

    let answer = server.post(
        "/rerank",
        &fixed_json!({ "query": "a", "documents": ["b"] }),
    );
    assert_eq!(answer.status, 400, "{}", answer.body);
    let error = &answer.json()["error"];
    assert_eq!(error["param"], "model", "{error}");
    assert!(answer.body.contains("3 labels"), "{}", answer.body);
}

#[test]
fn cross_encoder_ranks_documents() {
    let (server, golden) = serve("xlm_roberta");
    let pairs = golden["pairs"].as_array().expect("pairs");
    let query = &pairs[0]["query"];
    let documents: Vec<&Value> = pairs[..2].iter().map(|pair| &pair["document"]).collect();
    let request = json!({ "query": query, "documents": documents });
    let answer = server.post("/v1/rerank", &request).json();
    let mut results = answer["results"].as_array().expect("results").clone();
    results.sort_by_key(|result| result["index"].as_u64());
    for (at, result) in results.iter().enumerate() {
        check_close(&json!([result["relevance_score"]]), &golden["scores"][at]);
    }
    let tokens: usize = pairs[..2]
        .iter()
        .map(|pair| pair["tokens"].as_array().map_or(0, Vec::len))
        .sum();
    assert_eq!(answer["usage"]["prompt_tokens"], tokens);

    let long = pairs.last().expect("pairs");
    let mut request = json!({ "query": long["query"], "documents": [long["document"]] });
    let answer = server.post("/v1/rerank", &request);
    assert_eq!(answer.status, 400, "{}", answer.body);
    let error = &answer.json()["error"];
    assert_eq!(error["param"], "documents[0]");
    // The reference has truncated the pair.
    let limit = long["tokens"].as_array().map_or(0, Vec::len);
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.starts_with("documents[0]: has ")
            && message.contains(&format!(" tokens, expected at most {limit}: ")),
        "{message}"
    );
    request["truncate"] = true.into();
    request["use_activation"] = false.into();
    let answer = server.post("/v1/rerank", &request).json();
    let score = &answer["results"][0]["relevance_score"];
    check_close(&json!([score]), &golden["logits"][pairs.len() - 1]);
}

#[test]
fn other_requests_of_a_classifier_are_refused() {
    let (server, _) = serve("xlm_roberta");
    for (path, request, part) in [
        (
            "/v1/embeddings",
            fixed_json!({ "input": "a" }),
            "no embeddings",
        ),
        (
            "/v1/completions",
            fixed_json!({ "prompt": "a" }),
            "is a classifier",
        ),
    ] {
        let answer = server.post(path, &request);
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        assert_eq!(answer.json()["error"]["param"], "model", "{path}");
        assert!(answer.body.contains(part), "{path}: {}", answer.body);
    }
    for (path, request, param) in [
        ("/classify", json!({}), "input"),
        ("/classify", fixed_json!({ "input": [] }), "input"),
        ("/classify", fixed_json!({ "input": "" }), "input"),
        ("/classify", fixed_json!({ "input": [[4000]] }), "input[0]"),
        ("/classify", fixed_json!({ "input": ["a", ""] }), "input[1]"),
        ("/predict", json!({}), "inputs"),
        (
            "/predict",
            fixed_json!({ "inputs": ["a", "b", "c"] }),
            "inputs",
        ),
        (
            "/predict",
            fixed_json!({ "inputs": [["a"], "b", 3] }),
            "inputs[2]",
        ),
        ("/predict", fixed_json!({ "inputs": [[]] }), "inputs[0]"),
    ] {
        let answer = server.post(path, &request);
        assert_eq!(answer.status, 400, "{path} {request}: {}", answer.body);
        let error = &answer.json()["error"];
        assert_eq!(error["param"], param, "{path} {request}: {error}");
    }
}

#[test]
fn other_models_have_no_labels() {
    let server = TestServer::new();
    for (path, request) in [
        ("/classify", fixed_json!({ "input": "a" })),
        ("/predict", fixed_json!({ "inputs": "a" })),
    ] {
        let answer = server.post(path, &request);
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        assert_eq!(answer.json()["error"]["param"], "model", "{path}");
        assert!(answer.body.contains("no classification head"), "{path}");
    }
}
