//! Bodies of requests: their memory, and those that are not read.

use crate::client::{TestServer, config, parse};
use serde_json::json;
use std::io::{Read, Write};

const ENDPOINTS: [&str; 10] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/classify",
    "/tokenize",
    "/score",
    "/completion",
];

#[test]
fn values_are_limited_before_they_are_parsed() {
    let server = TestServer::new();
    let objects = format!(
        "{{\"x\":[{}0],\"prompt\":\"a\"}}",
        "{\"\":0},".repeat(200_000)
    );
    let lists = format!("{{\"input\":[{}[]]}}", "[],".repeat(1_000_000));
    let pairs = (0..400_000).map(|at| format!("\"{at}\":0"));
    let pairs = pairs.collect::<Vec<_>>().join(",");
    let map = format!("{{\"logit_bias\":{{{pairs}}}}}");
    let texts = format!("{{\"stop\":[{}\"\"]}}", "\"\",".repeat(1_000_000));
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(200), "]".repeat(200));
    for path in ENDPOINTS {
        for body in [&objects, &lists, &map, &texts] {
            let answer = server.send("POST", path, &[], body.as_bytes());
            assert_eq!(answer.status, 413, "{path}: {}", answer.body);
            assert!(answer.body.contains("values"), "{path}: {}", answer.body);
        }
        let answer = server.send("POST", path, &[], deep.as_bytes());
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
    }
}

#[test]
fn unknown_fields_are_skipped() {
    let server = TestServer::new();
    let unknown = json!([{ "a": [1, 2.5, "\u{e9}\n", null, true] }]);
    let request =
        json!({ "prompt": "a", "max_tokens": 1, "seed": 1, "temperature": 0, "x": unknown });
    let answer = server.post("/v1/completions", &request);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let marked = "\u{feff}{\"prompt\":\"a\",\"max_tokens\":1}";
    let answer = server.send("POST", "/v1/completions", &[], marked.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
    let twice = br#"{"prompt":"a","max_tokens":1,"max_tokens":2}"#;
    let answer = server.send("POST", "/v1/completions", &[], twice);
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert_eq!(answer.json()["error"]["param"], "max_tokens");
}

#[test]
fn the_memory_of_all_bodies_is_limited() {
    let mut config = config();
    config.limits.bodies_bytes = 4 << 20;
    let server = TestServer::with(config);
    let large = json!({ "content": "a".repeat((3 << 20) + 1) });
    let small = json!({ "content": "a" });
    for _ in 0..3 {
        let answer = server.post("/tokenize", &large);
        assert_eq!(answer.status, 503, "{}", answer.body);
        assert_eq!(answer.header("retry-after"), Some("1"));
        // What the other body had was returned.
        let most = json!({ "content": "a ".repeat(1 << 20) });
        assert_eq!(server.post("/tokenize", &most).status, 200);
        assert_eq!(server.post("/tokenize", &small).status, 200);
    }
    // A body that is on its way keeps no other out.
    let mut slow = server.connect();
    let head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n{";
    slow.write_all(head.as_bytes()).expect("written");
    assert_eq!(server.post("/tokenize", &small).status, 200);
}

#[test]
fn a_client_that_sends_a_whole_body_reads_the_refusal() {
    let mut config = config();
    config.limits.body_bytes = 4096;
    config.api_keys = vec!["key".to_string()];
    let server = TestServer::with(config);
    let body = vec![b' '; 20 << 20];
    for (key, encoding, status) in [
        ("key", "identity", 413),
        ("key", "gzip", 415),
        ("none", "identity", 401),
    ] {
        for framing in ["Content-Length: 20971520", "Transfer-Encoding: chunked"] {
            let mut stream = server.connect();
            let head = format!(
                "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: {key}\r\n\
                 Content-Encoding: {encoding}\r\n{framing}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).expect("written");
            if framing.ends_with("chunked") {
                stream.write_all(b"1400000\r\n").expect("written");
            }
            stream.write_all(&body).expect("the server reads the rest");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("an answer");
            let answer = parse(&String::from_utf8_lossy(&answer));
            assert_eq!(answer.status, status, "{framing}: {}", answer.body);
            assert_eq!(answer.header("connection"), Some("close"));
        }
    }
    assert_eq!(server.get("/health").status, 200);
}
