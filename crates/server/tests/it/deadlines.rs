//! The deadline of requests of every kind, and turns between them.

use crate::audio;
use crate::classify;
use crate::client::{Answer, TestServer, config, endpoints};
use crate::limits::{running, wait_until};
use crate::speech_model::ENGLISH;
use serde_json::json;
use std::time::{Duration, Instant};
use tabla::embed::Pooling;
use tabla_server::{Config, ServerEvent};
use tabla_testkit::fixed_json;

/// Returns texts of about 100 tokens, without a common prefix.
fn texts(count: usize) -> Vec<String> {
    let text = |at: usize| format!("{at} times upon a time there was a big dog. ").repeat(8);
    (0..count).map(text).collect()
}

/// Returns the configuration of a model that generates text and computes embeddings.
fn both() -> Config {
    let mut config = config();
    config.load = config.load.embeddings(true);
    config.pooling = Some(Pooling::Mean);
    config
}

/// Checks that a request had no time, and that nothing of it goes on.
fn check_late(server: &TestServer, answer: &Answer, what: &str) {
    assert_eq!(answer.status, 504, "{what}: {}", answer.body);
    let error = &answer.json()["error"];
    assert_eq!(error["type"], "timeout_error", "{what}: {error}");
    wait_until("the slot is free", || running(server) == 0);
}

#[test]
fn work_without_tokens_ends_at_the_deadline() {
    let mut config = both();
    config.limits.request_time = Duration::from_millis(100);
    let server = TestServer::with(config.clone());
    let texts = texts(2000);
    let long = texts[..150].concat();
    for (path, request) in [
        ("/v1/embeddings", json!({ "input": texts })),
        ("/score", json!({ "prompt": "a", "continuations": texts })),
        (
            "/v1/completions",
            json!({ "prompt": texts, "max_tokens": 1 }),
        ),
        (
            "/v1/completions",
            json!({ "prompt": texts, "max_tokens": 0, "echo": true, "logprobs": 1 }),
        ),
        (
            "/tokenize",
            json!({ "content": long.repeat(60), "with_pieces": true }),
        ),
    ] {
        let begun = Instant::now();
        let answer = server.post(path, &request);
        check_late(&server, &answer, path);
        assert!(begun.elapsed() < Duration::from_secs(60), "{path}");
    }
    // Other requests have all of the model.
    let request = fixed_json!({ "prompt": "a", "max_tokens": 1 });
    assert_eq!(server.post("/v1/completions", &request).status, 200);
}

#[test]
fn work_of_encoders_ends_at_the_deadline() {
    let mut config = config();
    config.models[0].source = tabla::Source::from(&classify::golden("xlm_roberta").join("hf"));
    config.models[0].chat_template = None;
    config.limits.request_time = Duration::from_millis(20);
    let server = TestServer::with(config);
    let texts: Vec<String> = texts(2000)
        .iter()
        .map(|text| text[..20].to_string())
        .collect();
    for (path, request) in [
        ("/v1/rerank", json!({ "query": "a", "documents": texts })),
        ("/v1/classify", json!({ "input": texts })),
        (
            "/predict",
            json!({ "inputs": texts.iter().map(|text| [text]).collect::<Vec<_>>() }),
        ),
    ] {
        check_late(&server, &server.post(path, &request), path);
    }
}

#[test]
fn transcriptions_end_at_the_deadline() {
    let mut config = audio::config(ENGLISH);
    config.limits.request_time = Duration::from_millis(500);
    let server = TestServer::with(config.clone());
    let answer = audio::transcribe(&server, 1200, &[]);
    check_late(&server, &answer, "transcription");
    // Too short for 40 windows, and long enough for the stream to begin: how long that takes
    // depends on the machine.
    for seconds in [1, 2, 4, 8, 16] {
        config.limits.request_time = Duration::from_secs(seconds);
        let server = TestServer::with(config.clone());
        let answer = audio::transcribe(&server, 1200, &[("stream", "true")]);
        if answer.status == 504 {
            continue;
        }
        assert_eq!(answer.status, 200, "{}", answer.body);
        let events = answer.events();
        let last = events.last().expect("an event");
        assert_eq!(last["error"]["type"], "timeout_error", "{last}");
        assert!(!answer.body.contains("[DONE]"));
        wait_until("the slot is free", || running(&server) == 0);
        return;
    }
    panic!("no stream began");
}

#[test]
fn long_embeddings_do_not_keep_answers_waiting() {
    for sequences in [4, 1] {
        let mut config = both();
        config.load = config.load.sequences(sequences);
        let server = TestServer::with(config);
        let long = json!({ "input": texts(2000) }).to_string();
        let embeddings = [(); 8].map(|()| server.hold("/v1/embeddings", &[], long.as_bytes()));
        wait_until("embeddings run", || running(&server) > 0);
        let request = fixed_json!({ "prompt": "a", "max_tokens": 5 });
        let answer = server.post("/v1/completions", &request);
        assert_eq!(answer.status, 200, "{}", answer.body);
        // They have no slot between two passes.
        wait_until("embeddings still run", || running(&server) > 0);
        drop(embeddings);
        wait_until("the slot is free", || running(&server) == 0);
    }
}

#[test]
fn long_recordings_do_not_keep_short_ones_waiting() {
    let mut config = audio::config(ENGLISH);
    config.load = config.load.sequences(1);
    let server = TestServer::with(config);
    let long = audio::hold_transcription(&server, 1200);
    wait_until("the recording is transcribed", || running(&server) == 1);
    let answer = audio::transcribe(&server, 1, &[]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    // It has no slot between two windows.
    wait_until("the recording is still transcribed", || {
        running(&server) == 1
    });
    drop(long);
    wait_until("the slot is free", || running(&server) == 0);
}

#[test]
fn a_model_is_loaded_though_its_request_ends() {
    let mut config = config();
    let mut second = config.models[0].clone();
    second.name = "second".to_string();
    second.aliases.clear();
    config.models.push(second);
    config.limits.request_time = Duration::from_millis(1);
    let server = TestServer::with(config);
    let request = fixed_json!({ "model": "second", "prompt": "a", "max_tokens": 1 });
    assert_eq!(server.post("/v1/completions", &request).status, 504);
    let loads = || {
        let events = server.events.lock().expect("no panic");
        let is_second = |event: &&ServerEvent| matches!(event, ServerEvent::Loaded(name, _) if name == "second");
        events.iter().filter(is_second).count()
    };
    wait_until("the model is loaded", || loads() == 1);
}

#[test]
fn every_endpoint_has_the_deadline() {
    let document = TestServer::new().get("/openapi.json").json();
    let mut config = config();
    config.limits.request_time = Duration::ZERO;
    let server = TestServer::with(config);
    let endpoints = endpoints(&document);
    assert!(endpoints.len() >= 30, "{endpoints:?}");
    for (method, path) in endpoints {
        let bare = path.trim_start_matches("/v1").to_string();
        for path in [format!("/v1{bare}"), bare] {
            let answer = server.send(&method, &path, &[], b"{}");
            assert_eq!(answer.status, 504, "{method} {path}: {}", answer.body);
            let body = answer.json();
            assert_eq!(body["error"]["type"], "timeout_error", "{path}: {body}");
            let is_anthropic = path.contains("/messages");
            assert_eq!(body["type"] == "error", is_anthropic, "{path}: {body}");
        }
    }
}
