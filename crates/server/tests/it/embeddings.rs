//! Embeddings of texts over the length limit, and models that rank documents.

use crate::client::{TestServer, config};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tabla::Source;
use tabla_testkit::fixed_json;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden")
        .join(name)
}

/// Starts a server with a model.
fn serve(path: &Path) -> TestServer {
    let mut config = config();
    config.models[0].source = Source::from(path);
    config.models[0].chat_template = None;
    TestServer::with(config)
}

#[test]
fn texts_over_the_limit_are_named_or_truncated() {
    let text = std::fs::read_to_string(golden("arch/bert/golden.json")).expect("a golden file");
    let reference: Value = serde_json::from_str(&text).expect("JSON");
    let server = serve(&golden("arch/bert/hf"));
    let post = |request: Value| server.post("/v1/embeddings", &request);
    let embedding = |request: Value| {
        let answer = post(request);
        let value = answer.json();
        assert_eq!(answer.status, 200, "{}", answer.body);
        value["data"][0]["embedding"].clone()
    };
    // The tokens of the reference, which sentence-transformers has truncated.
    let (long, kept) = (
        &reference["truncated"]["text"],
        &reference["truncated"]["tokens"],
    );
    let request = json!({ "content": long, "add_special": true, "parse_special": false });
    let ids = server.post("/tokenize", &request).json()["tokens"].clone();
    let ids = ids.as_array().expect("tokens");
    let max = kept.as_array().map_or(0, Vec::len);
    assert!(ids.len() > max);
    for (input, param) in [
        (json!(["a", long]), "input[1]"),
        (json!([long]), "input[0]"),
        (long.clone(), "input"),
        (json!(["a", ids]), "input[1]"),
        (json!(ids), "input"),
    ] {
        let answer = post(json!({ "input": input }));
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["param"]),
            (400, &json!(param)),
            "{error}"
        );
        let expected = format!("{param}: has {} tokens, expected at most {max}", ids.len());
        let message = error["message"].as_str().expect("a message");
        assert!(message.starts_with(&expected), "{message}");
    }
    let whole = embedding(json!({ "input": [kept] }));
    assert_eq!(
        embedding(json!({ "input": [long, "a"], "truncate": true })),
        whole
    );
    assert_eq!(embedding(json!({ "input": ids, "truncate": true })), whole);
    // The last tokens, between the special tokens.
    let (first, last) = (&ids[..1], &ids[ids.len() - 1..]);
    for (count, length) in [(-1, max), (7, 7), (2, 2)] {
        let text = &ids[ids.len() + 1 - length..ids.len() - 1];
        let expected = embedding(json!({ "input": vec![[first, text, last].concat()] }));
        let request = json!({ "input": long, "truncate_prompt_tokens": count });
        assert_eq!(embedding(request), expected, "{count}");
    }
    let short = embedding(fixed_json!({ "input": "a" }));
    assert_eq!(
        embedding(fixed_json!({ "input": "a", "truncate_prompt_tokens": 9 })),
        short
    );
    for request in [
        fixed_json!({ "input": "a", "truncate_prompt_tokens": 0 }),
        json!({ "input": "a", "truncate_prompt_tokens": max + 1 }),
        fixed_json!({ "input": "a", "truncate_prompt_tokens": 5, "truncate": true }),
    ] {
        let answer = post(request);
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["param"]),
            (400, &json!("truncate_prompt_tokens"))
        );
    }
}

/// A chat model with the vocabulary of a reranker is none.
#[test]
fn chat_models_do_not_rank() {
    let request = fixed_json!({ "query": "a", "documents": ["b", "c"] });
    let answer = serve(&golden("reranker/hf")).post("/v1/rerank", &request);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let chat = serve(&golden("qwen3.gguf"));
    for path in ["/v1/rerank", "/rerank", "/reranking"] {
        let answer = chat.post(path, &request);
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["param"]),
            (400, &json!("model")),
            "{error}"
        );
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("the model is no reranker"), "{message}");
    }
    let reranker = serve(&golden("reranker/hf"));
    let long = "the sea ".repeat(2000);
    for (extra, param) in [
        (fixed_json!({ "truncate": true }), "truncate"),
        (json!({ "documents": ["a", long] }), "documents[1]"),
    ] {
        let mut request = request.clone();
        for (name, value) in extra.as_object().expect("an object") {
            request[name] = value.clone();
        }
        let answer = reranker.post("/v1/rerank", &request);
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["param"]),
            (400, &json!(param)),
            "{error}"
        );
    }
}
