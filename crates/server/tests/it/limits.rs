//! The queue, disconnects, and limits of sizes and times.

use crate::client::{TestServer, config};
use serde_json::json;
use std::io::{Read, Write};
use std::str::FromStr;
use std::time::{Duration, Instant};
use tabla_server::ServerEvent;
use tabla_testkit::fixed_json;

/// Returns a metric of the model.
fn metric<T: FromStr>(server: &TestServer, name: &str) -> T {
    let metrics = server.get("/metrics").body;
    let start = format!("{name}{{model=\"story\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&start));
    let value = value.and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("{name}: {metrics}"))
}

pub(crate) fn running(server: &TestServer) -> usize {
    metric(server, "tabla_requests_running")
}

pub(crate) fn waiting(server: &TestServer) -> usize {
    metric(server, "tabla_requests_waiting")
}

pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a stream that does not end by itself, and reads its first bytes.
fn endless(server: &TestServer) -> std::net::TcpStream {
    let body = json!({ "prompt": "Once", "ignore_eos": true, "stream": true, "max_tokens": 100_000, "logprobs": 20, "n": 16 }).to_string();
    let mut stream = server.connect();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + &body).as_bytes())
        .expect("written");
    let mut first = [0; 256];
    assert!(stream.read(&mut first).expect("an answer") > 0);
    stream
}

fn records(server: &TestServer, error: &str) -> usize {
    let events = server.events.lock().expect("no panic");
    let is_record = |event: &&ServerEvent| match event {
        ServerEvent::Request(record) => record.error.as_deref() == Some(error),
        _ => false,
    };
    events.iter().filter(is_record).count()
}

#[test]
fn a_full_queue_is_429_and_a_disconnect_cancels() {
    let mut config = config();
    config.limits.queue = 0;
    config.load = config.load.sequences(1);
    let server = TestServer::with(config);
    let long = fixed_json!({ "prompt": "Once", "ignore_eos": true, "max_tokens": 1900, "n": 16, "logprobs": 20 });
    let whole = server.hold("/v1/completions", &[], long.to_string().as_bytes());
    wait_until("the request runs", || running(&server) == 1);
    let request = fixed_json!({ "prompt": "a", "max_tokens": 1 });
    let answer = server.post("/v1/completions", &request);
    assert_eq!(answer.status, 429, "{}", answer.body);
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.json()["error"]["code"], "queue_full");
    drop(whole);
    wait_until("the slot is free", || running(&server) == 0);
    assert_eq!(server.post("/v1/completions", &request).status, 200);
    assert_eq!(records(&server, "the client disconnected"), 1);
}

#[test]
fn slow_readers_do_not_slow_others() {
    let mut config = config();
    config.limits.stall_time = Duration::from_secs(3600);
    let server = TestServer::with(config);
    let _slow: Vec<_> = (0..8).map(|_| endless(&server)).collect();
    for _ in 0..4 {
        let request = fixed_json!({ "prompt": "a", "max_tokens": 50, "ignore_eos": true });
        assert_eq!(server.post("/v1/completions", &request).status, 200);
    }
    assert_eq!(records(&server, "the client disconnected"), 0);
}

#[test]
fn a_stalled_reader_is_disconnected() {
    let mut config = config();
    config.limits.stall_time = Duration::from_millis(200);
    let server = TestServer::with(config);
    let _stalled = endless(&server);
    let is_ended = || records(&server, "the client disconnected") == 1;
    wait_until("the connection is closed", is_ended);
    wait_until("the slot is free", || running(&server) == 0);
}

#[test]
fn a_request_ends_at_its_deadline() {
    let mut config = config();
    config.limits.request_time = Duration::from_millis(300);
    let server = TestServer::with(config.clone());
    let answer = server.post(
        "/v1/completions",
        &fixed_json!({ "prompt": "a", "max_tokens": 1900, "ignore_eos": true, "n": 4 }),
    );
    let answer = answer.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
    assert!(answer["usage"]["completion_tokens"].as_u64() < Some(4 * 1900));
    // A prompt has no token with which it could end.
    config.limits.request_time = Duration::from_millis(1);
    let server = TestServer::with(config);
    let answer = server.post("/v1/completions", &json!({ "prompt": "a".repeat(500) }));
    assert_eq!(answer.status, 504, "{}", answer.body);
}

#[test]
fn sizes_are_limited() {
    let mut config = config();
    config.limits.body_bytes = 4096;
    let server = TestServer::with(config);
    let large = json!({ "prompt": "a".repeat(5000) });
    let answer = server.post("/v1/completions", &large);
    assert_eq!(answer.status, 413);
    let chunked = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        5000,
        "a".repeat(5000)
    );
    assert!(server.raw(chunked.as_bytes()).starts_with("HTTP/1.1 413"));
    let promised =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000000\r\n\r\n";
    let begun = Instant::now();
    assert!(server.raw(promised.as_bytes()).starts_with("HTTP/1.1 413"));
    assert!(begun.elapsed() < Duration::from_secs(60));
    let compressed = server.send(
        "POST",
        "/v1/completions",
        &[("Content-Encoding", "gzip")],
        b"{}",
    );
    assert_eq!(compressed.status, 415);
    for (request, param) in [
        (
            json!({ "prompt": "a", "stop": vec!["x"; 65] }),
            Some("stop"),
        ),
        (fixed_json!({ "prompt": "a", "n": 17 }), Some("n")),
        (
            fixed_json!({ "prompt": "a", "logprobs": 21 }),
            Some("logprobs"),
        ),
        (fixed_json!({ "prompt": [[]] }), Some("prompt[0]")),
        (fixed_json!({ "prompt": [[true]] }), Some("prompt[0]")),
    ] {
        let answer = server.post("/v1/completions", &request);
        assert_eq!(answer.status, 400, "{request}");
        assert_eq!(answer.json()["error"]["param"].as_str(), param, "{request}");
    }
}

#[test]
fn the_time_of_a_prompt_is_not_that_of_its_answer() {
    let server = TestServer::new();
    let request = json!({ "prompt": "a".repeat(400), "max_tokens": 1 });
    assert_eq!(server.post("/v1/completions", &request).status, 200);
    assert_eq!(metric::<u64>(&server, "tabla_generation_tokens_total"), 1);
    let generation: String = metric(&server, "tabla_generation_seconds_total");
    assert_eq!(generation, "0");
    assert!(metric::<f64>(&server, "tabla_prompt_seconds_total") > 0.0);
}
