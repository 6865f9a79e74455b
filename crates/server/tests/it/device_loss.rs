//! A GPU that is lost while the server answers: the model is loaded again, and answers go on.

use crate::client::{TestServer, config};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::sync::Mutex;
use tabla::exec::gpu::Device;
use tabla::load::{DeviceChoice, devices};
use tabla_server::{Config, ServerEvent};

/// The devices of loaded models, the last one last.
static GPUS: Mutex<Vec<Device>> = Mutex::new(Vec::new());

fn on_gpu() -> Option<Config> {
    let has_gpu = !devices().expect("a CPU").gpus.is_empty();
    let mut config = config();
    let load = config.load.device(DeviceChoice::Gpu).sequences(2);
    config.load = load.max_context(256).embeddings(true);
    config.pooling = Some(tabla::embed::Pooling::Mean);
    config.on_load = |model| {
        let gpu = model.gpu().expect("a GPU");
        GPUS.lock().expect("no panic").push(gpu);
    };
    has_gpu.then_some(config)
}

/// Destroys the device of the model that was loaded last.
fn lose() {
    let gpus = GPUS.lock().expect("no panic");
    gpus.last().expect("a model").destroy();
}

/// Requests a stream, loses the device after this number of events, and returns the events.
fn stream(
    server: &TestServer,
    path: &str,
    request: &Value,
    lose_after: Option<usize>,
) -> Vec<Value> {
    let body = request.to_string();
    let mut connection = server.connect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).expect("sent");
    connection.write_all(body.as_bytes()).expect("sent");
    let mut events = Vec::new();
    for line in BufReader::new(connection).lines() {
        let line = line.expect("an answer");
        match line.strip_prefix("data: ") {
            Some("[DONE]") => return events,
            Some(data) => events.push(serde_json::from_str(data).expect("JSON")),
            None => continue,
        }
        if Some(events.len()) == lose_after {
            lose();
        }
    }
    panic!("the stream has no end: {events:?}");
}

/// Returns what does not depend on times, identifiers and the prefix cache.
fn content(events: &[Value]) -> Vec<[Value; 3]> {
    let choices = events.iter().map(|event| &event["choices"][0]);
    let fields = choices.map(|c| ["text", "finish_reason", "logprobs"].map(|f| c[f].clone()));
    fields.collect()
}

/// Streams and whole answers continue without a repeated or a missing token; waiting and later requests succeed.
#[test]
fn answers_continue_after_a_device_loss() {
    let Some(config) = on_gpu() else { return };
    let server = TestServer::with(config);
    let greedy = json!({ "prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "stream": true, "ignore_eos": true });
    let mut sampled = greedy.clone();
    for (field, value) in [
        ("temperature", json!(1.2)),
        ("seed", json!(5)),
        ("logprobs", json!(1)),
    ] {
        sampled[field] = value;
    }
    for request in [&greedy, &sampled] {
        let expected = stream(&server, "/v1/completions", request, None);
        let after = stream(&server, "/v1/completions", request, Some(3));
        assert!(expected.len() > 40, "{} events", expected.len());
        assert_eq!(content(&after), content(&expected));
    }
    // Several choices, of which some wait for a sequence, and another request.
    let mut whole = sampled.clone();
    (whole["stream"], whole["n"]) = (json!(false), json!(3));
    whole["max_tokens"] = json!(24);
    let texts = || {
        let answer = server.post("/v1/completions", &whole);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let choices = answer.json()["choices"]
            .as_array()
            .expect("choices")
            .clone();
        choices
            .iter()
            .map(|c| c["text"].clone())
            .collect::<Vec<_>>()
    };
    let expected = texts();
    std::thread::scope(|scope| {
        let answers = [(); 2].map(|()| scope.spawn(texts));
        std::thread::sleep(std::time::Duration::from_millis(200));
        lose();
        for answer in answers {
            assert_eq!(answer.join().expect("an answer"), expected);
        }
    });
    lose();
    let embedded = server.post("/v1/embeddings", &json!({ "input": "a dog" }));
    assert_eq!(embedded.status, 200, "{}", embedded.body);
    let events = server.events.lock().expect("no panic");
    let is_warning = |event: &&ServerEvent| matches!(event, ServerEvent::Warning(text) if text.contains("device lost"));
    // The third loss may come after the end of the answers, to the same load as the fourth.
    let loads = events.iter().filter(is_warning).count();
    assert!((3..=4).contains(&loads), "{events:?}");
}
