//! What an open port invites: other web sites, slow clients, damaged requests, wrong keys.

use crate::client::{TestServer, config, endpoints, parse};
use serde_json::json;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

#[test]
fn hosts_and_origins_are_checked() {
    let server = TestServer::new();
    let body = json!({ "prompt": "a", "max_tokens": 1 }).to_string();
    let status = |headers: &[(&str, &str)]| {
        server
            .send("POST", "/v1/completions", headers, body.as_bytes())
            .status
    };
    assert_eq!(status(&[("Host", "evil.example")]), 403);
    assert_eq!(status(&[("Host", "")]), 400);
    assert_eq!(status(&[("Host", ":8080")]), 400);
    assert_eq!(status(&[("Host", "localhost:1")]), 200);
    assert_eq!(status(&[("Origin", "https://evil.example")]), 403);
    assert_eq!(
        status(&[("Origin", "null"), ("Content-Type", "text/plain")]),
        403
    );
    assert_eq!(status(&[("Sec-Fetch-Site", "cross-site")]), 403);
    assert_eq!(
        status(&[
            ("Origin", "http://localhost:3000"),
            ("Content-Type", "text/plain")
        ]),
        415
    );
    assert_eq!(
        status(&[
            ("Origin", "http://localhost:3000"),
            ("Content-Type", "application/json")
        ]),
        200
    );
    let link = server.send("GET", "/", &[("Sec-Fetch-Site", "cross-site")], b"");
    assert_eq!(link.status, 200);
    let missing = server.raw(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(missing.starts_with("HTTP/1.1 400"), "{missing}");
    for (target, host, status) in [
        ("http://localhost/health", "localhost", 200),
        ("http://evil.example/health", "localhost", 403),
        ("http://localhost/health", "evil.example", 403),
        ("evil.example:80", "localhost", 403),
    ] {
        let method = if target.starts_with("http") {
            "GET"
        } else {
            "CONNECT"
        };
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(
            parse(&server.raw(request.as_bytes())).status,
            status,
            "{target} {host}"
        );
    }
}

#[test]
fn cross_origin_headers_name_one_origin() {
    let mut config = config();
    config.cors_origins = vec!["https://app.example".to_string()];
    let server = TestServer::with(config);
    let preflight = |origin: &str| {
        server.send(
            "OPTIONS",
            "/v1/chat/completions",
            &[
                ("Origin", origin),
                ("Access-Control-Request-Method", "POST"),
            ],
            b"",
        )
    };
    let allowed = preflight("https://app.example");
    assert_eq!(allowed.status, 204);
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert_eq!(allowed.header("vary"), Some("origin"));
    assert!(
        allowed
            .header("access-control-allow-headers")
            .is_some_and(|names| names.contains("x-api-key"))
    );
    assert!(allowed.header("access-control-allow-credentials").is_none());
    let refused = preflight("https://evil.example");
    assert_eq!(refused.status, 403);
    assert!(refused.header("access-control-allow-origin").is_none());
}

#[test]
fn keys_are_needed_everywhere_except_health_and_page() {
    let mut config = config();
    config.api_keys = vec!["first".to_string(), "second".to_string()];
    let server = TestServer::with(config);
    let status =
        |path: &str, headers: &[(&str, &str)]| server.send("GET", path, headers, b"").status;
    for path in [
        "/v1/models",
        "/metrics",
        "/props",
        "/slots",
        "/table",
        "/none",
    ] {
        assert_eq!(status(path, &[]), 401, "{path}");
    }
    for path in ["/", "/health"] {
        assert_eq!(status(path, &[]), 200, "{path}");
    }
    for (name, value, expected) in [
        ("Authorization", "Bearer second", 200),
        ("Authorization", "bearer first", 200),
        ("x-api-key", "first", 200),
        ("Authorization", "Bearer firs", 401),
        ("Authorization", "Bearer first1", 401),
        ("Authorization", "first", 401),
        ("x-api-key", "", 401),
    ] {
        assert_eq!(
            status("/v1/models", &[(name, value)]),
            expected,
            "{name}: {value}"
        );
    }
    let refused = server.send("POST", "/v1/messages", &[], b"{}");
    assert_eq!(refused.json()["type"], "error");
    assert_eq!(refused.json()["error"]["type"], "authentication_error");
}

#[test]
fn damaged_bodies_are_400_with_json() {
    let server = TestServer::new();
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let bodies: [&[u8]; 10] = [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{\"prompt\":\"\xff\"}",
        b"{\"prompt\":\"\\ud800\"}",
        b"{\"prompt\":NaN}",
        b"{\"temperature\":1e999,\"prompt\":\"a\"}",
        b"{\"prompt\":\"a\"} x",
        &deep,
    ];
    for path in [
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/rerank",
        "/tokenize",
        "/activations",
    ] {
        for body in bodies {
            let answer = server.send("POST", path, &[], body);
            let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            assert_eq!(answer.status, 400, "{path} {shown}: {}", answer.body);
            let error = &answer.json()["error"];
            for key in ["message", "type", "param", "code"] {
                assert!(error.get(key).is_some(), "{path} {shown}: {error}");
            }
        }
    }
}

#[test]
fn paths_are_looked_up_and_never_opened() {
    let server = TestServer::new();
    for path in [
        "/../../etc/passwd",
        "/page/..%2f..%2fCargo.toml",
        "/page/../page/index.html",
        "/v1/v1/models",
        "/page/none.js",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 404, "{path}: {}", answer.body);
        assert!(answer.json()["error"]["message"].is_string());
    }
    let answer = server.send("PUT", "/v1/models", &[], b"");
    assert_eq!(answer.status, 405);
    assert!(
        answer
            .header("allow")
            .is_some_and(|allow| allow.contains("get"))
    );
    let head = server.send("HEAD", "/", &[], b"");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn the_page_has_a_strict_policy() {
    let server = TestServer::new();
    let page = server.get("/");
    let policy = page.header("content-security-policy").expect("a policy");
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let tag = page.header("etag").expect("a tag").to_string();
    assert_eq!(
        server
            .send("GET", "/", &[("If-None-Match", &tag)], b"")
            .status,
        304
    );
}

#[test]
fn slow_and_oversized_headers_are_refused() {
    let mut config = config();
    config.limits.header_time = Duration::from_millis(300);
    config.limits.body_time = Duration::from_millis(300);
    let server = TestServer::with(config);
    let slow = server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ");
    assert!(
        slow.is_empty() || slow.starts_with("HTTP/1.1 408"),
        "{slow}"
    );
    let body = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
    assert!(server.raw(body).starts_with("HTTP/1.1 408"));
    let many = "X: y\r\n".repeat(200);
    let many = format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    let answer = server.raw(many.as_bytes());
    assert!(
        answer.starts_with("HTTP/1.1 431") || answer.starts_with("HTTP/1.1 400"),
        "{answer}"
    );
    let long = format!(
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "y".repeat(200_000)
    );
    let answer = server.raw(long.as_bytes());
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
        "{answer}"
    );
    let sum = "y".repeat(80_000);
    assert_eq!(
        server.send("GET", "/health", &[("X", &sum)], b"").status,
        431
    );
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn smuggled_lengths_are_refused() {
    let server = TestServer::new();
    for headers in [
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: -1",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    ] {
        let request = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n\r\nabc"
        );
        let answer = server.raw(request.as_bytes());
        assert!(
            answer.starts_with("HTTP/1.1 4") || answer.is_empty(),
            "{headers}: {answer}"
        );
    }
}

#[test]
fn names_and_output_are_not_interpreted() {
    let mut config = config();
    config.strict_model = true;
    let server = TestServer::with(config);
    let name = "<img src=x onerror=alert(1)>\r\nX-Injected: 1";
    let answer = server.post("/v1/completions", &json!({ "model": name, "prompt": "a" }));
    assert_eq!(answer.status, 404);
    assert!(answer.header("x-injected").is_none());
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[test]
fn many_connections_do_not_stop_the_server() {
    let server = TestServer::new();
    let half = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
    let mut open = Vec::new();
    for _ in 0..500 {
        let mut stream = server.connect();
        stream.write_all(half).expect("written");
        open.push(stream);
    }
    let begun = Instant::now();
    assert_eq!(server.get("/health").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn connections_are_limited() {
    let mut config = config();
    config.limits.connections = 2;
    let server = TestServer::with(config);
    let mut held = [server.connect(), server.connect()];
    // Both are accepted once they have answered.
    for stream in &mut held {
        stream
            .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("written");
        let mut answer = [0; 1024];
        let count = stream.read(&mut answer).expect("an answer");
        assert_eq!(
            parse(&String::from_utf8_lossy(&answer[..count])).status,
            200
        );
    }
    assert_eq!(
        server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ""
    );
}

#[test]
fn an_idle_connection_is_kept_and_late_headers_are_not() {
    let mut config = config();
    config.limits.header_time = Duration::from_millis(200);
    let server = TestServer::with(config);
    let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut stream = server.connect();
    let mut answer = [0; 2048];
    for _ in 0..3 {
        stream.write_all(request).expect("written");
        let count = stream.read(&mut answer).expect("an answer");
        assert_eq!(
            parse(&String::from_utf8_lossy(&answer[..count])).status,
            200
        );
        std::thread::sleep(Duration::from_millis(400));
    }
    stream.write_all(&request[..20]).expect("written");
    let begun = Instant::now();
    assert_eq!(stream.read(&mut answer).unwrap_or(0), 0);
    assert!(begun.elapsed() < Duration::from_secs(60));
    // A connection that sends nothing.
    let mut silent = server.connect();
    assert_eq!(silent.read(&mut answer).unwrap_or(0), 0);
}

#[test]
fn the_reference_describes_every_endpoint() {
    let server = TestServer::new();
    let document = server.get("/openapi.json").json();
    for (method, path) in endpoints(&document) {
        let answer = server.send(&method, &path, &[], b"{}");
        let is_missing = answer.status == 405 || answer.body.contains("does not exist");
        assert!(!is_missing, "{method} {path}: {}", answer.body);
    }
    assert_eq!(server.get("/reference").status, 200);
    // The router's own list, where each line begins with a path.
    let router = include_str!("../../src/api/router.rs");
    let lines = router.lines().map(str::trim_start);
    let routed = lines.filter_map(|line| line.trim_start_matches('(').strip_prefix("\"/"));
    let mut routed: Vec<_> = routed
        .filter_map(|line| line.split_once('"'))
        .map(|(path, _)| path.replace("{*id}", "{name}"))
        .collect();
    routed.retain(|path| !path.is_empty());
    assert!(routed.len() >= 30, "{routed:?}");
    let paths = &document["paths"];
    for path in routed {
        let is_described = [format!("/{path}"), format!("/v1/{path}")]
            .iter()
            .any(|path| paths[path].is_object());
        assert!(is_described, "/{path}");
    }
}

#[test]
fn every_reference_to_a_schema_has_one() {
    let document = TestServer::new().get("/openapi.json").json();
    let text = document.to_string();
    let schemas = &document["components"]["schemas"];
    let references = text.split("#/components/schemas/").skip(1);
    let mut count = 0;
    for reference in references {
        let name = reference.split('"').next().expect("a name");
        assert!(schemas[name].is_object(), "{name}");
        count += 1;
    }
    assert!(count > 40, "{count}");
    let tools = &schemas["ChatFields"]["properties"]["tools"];
    assert!(tools["description"].is_string(), "{tools}");
}
