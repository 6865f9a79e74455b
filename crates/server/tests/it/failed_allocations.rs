//! Allocations that fail while the server answers: every answer is the same as otherwise or an error, later answers are
//! the same again, and nothing leaks.

use crate::audio;
use crate::client::{Answer, TestServer, config};
use crate::limits::wait_until;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Command;
use tabla::reserve::{self, Reserve};
use tabla_testkit::failing::{self, Failing, count_allocations, exempt, with_failures};

/// That of the program, with failures.
#[global_allocator]
static ALLOCATOR: Reserve<Failing<std::alloc::System>> = Reserve::new(Failing(std::alloc::System));

/// Is set in the process of the test, in which no other tests run.
const CHILD: &str = "TABLA_TEST_FAILED_ALLOCATIONS";
/// Number of places of a request where allocations fail, evenly spaced, and the same with `TABLA_EXHAUSTIVE=1`.
const PLACES: [u64; 2] = [12, 20_000];
/// The same for a transcription, which takes longer.
const TRANSCRIPTION_PLACES: [u64; 2] = [2, 50];
/// Maximum growth of the memory over all failures of a request. Buffers of connections and caches grow to a size.
const GROWTH_MAX: isize = 256 << 10;

/// Maximum number of bytes of the reserve that stay in use after an answer: those of connections and caches.
const RESERVED_MAX: usize = 128 << 10;

/// A request, and the part of its answer that does not depend on times and identifiers.
struct Request {
    name: &'static str,
    path: &'static str,
    body: fn() -> Value,
    content: fn(&Answer) -> Value,
}

const REQUESTS: &[Request] = &[
    Request {
        name: "completion",
        path: "/v1/completions",
        body: || json!({ "prompt": "Once upon a time", "max_tokens": 6, "temperature": 0 }),
        content: |answer| answer.json()["choices"].clone(),
    },
    Request {
        name: "chat",
        path: "/v1/chat/completions",
        body: || json!({ "messages": messages(), "max_tokens": 6, "temperature": 0, "logprobs": true }),
        content: |answer| answer.json()["choices"].clone(),
    },
    Request {
        name: "stream of messages",
        path: "/v1/messages",
        body: || json!({ "messages": messages(), "max_tokens": 6, "temperature": 0, "stream": true }),
        content: |answer| {
            let events = answer.events();
            let texts = events.iter().map(|event| event["delta"]["text"].clone());
            texts.collect()
        },
    },
    Request {
        name: "JSON schema",
        path: "/v1/chat/completions",
        body: || {
            let schema = json!({ "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"], "additionalProperties": false });
            let format = json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": schema, "strict": true } });
            json!({ "messages": messages(), "max_tokens": 20, "temperature": 0, "response_format": format })
        },
        content: |answer| answer.json()["choices"].clone(),
    },
    Request {
        name: "stored response",
        path: "/v1/responses",
        body: || json!({ "input": "Hello", "max_output_tokens": 6, "temperature": 0 }),
        content: |answer| answer.json()["output"][0]["content"].clone(),
    },
    Request {
        name: "tokens",
        path: "/tokenize",
        body: || json!({ "content": "Once upon a time" }),
        content: Answer::json,
    },
];

fn messages() -> Value {
    json!([{ "role": "user", "content": "Tell me a story." }])
}

#[test]
fn answers_are_the_same_or_errors() {
    if std::env::var_os(CHILD).is_some() {
        return fail_allocations();
    }
    let test = "failed_allocations::answers_are_the_same_or_errors";
    let child = Command::new(std::env::current_exe().expect("the path of this program"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("a child process");
    let out = String::from_utf8_lossy(&child.stdout);
    let err = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{}\n{out}\n{err}", child.status);
    assert!(err.contains("places"), "the test did not run: {out}");
    print(err.trim_end());
}

/// Prints a line, bypassing the output capture of the test runner.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

fn fail_allocations() {
    let server = TestServer::with(config());
    for request in REQUESTS {
        let body = (request.body)();
        let post = || {
            exempt(|| {
                let answer = server.post(request.path, &body);
                if request.path == "/v1/responses" && answer.status == 200 {
                    let id = answer.json()["id"].as_str().expect("an id").to_string();
                    server.send("DELETE", &format!("/v1/responses/{id}"), &[], b"");
                }
                *server.events.lock().expect("no panic") = Vec::new();
                answer
            })
        };
        let expected = post();
        assert_eq!(expected.status, 200, "{}: {}", request.name, expected.body);
        let expected = (request.content)(&expected);
        check(request.name, PLACES, &expected, &post, request.content);
    }
    use_up_reserve(&server);
    drop(server);
    let server = TestServer::with(audio::config(crate::speech_model::ENGLISH));
    let post = || exempt(|| audio::transcribe(&server, 1, &[("temperature", "0")]));
    let expected = post();
    assert_eq!(expected.status, 200, "{}", expected.body);
    let expected = expected.json();
    check(
        "transcription",
        TRANSCRIPTION_PLACES,
        &expected,
        &post,
        Answer::json,
    );
}

/// Posts a request again and again, with failures at all places.
fn check(
    name: &str,
    places: [u64; 2],
    expected: &Value,
    post: &dyn Fn() -> Answer,
    content: fn(&Answer) -> Value,
) {
    let count = count_allocations(|| drop(post()));
    let exhaustive = std::env::var_os("TABLA_EXHAUSTIVE").is_some_and(|v| v == "1");
    let places = places[usize::from(exhaustive)];
    let step = usize::try_from(count.div_ceil(places).max(1)).expect("small");
    let before = failing::bytes();
    let mut errors = 0;
    for failures in [1, u64::MAX] {
        for from in (0..count).step_by(step) {
            let (answer, _) = with_failures(from, failures, post);
            match answer.status {
                200 if content(&answer) == *expected => {}
                503 => errors += 1,
                status => panic!("{name}, allocation {from}: {status} {}", answer.body),
            }
            wait_until("the reserve is free", || {
                reserve::bytes_used() <= RESERVED_MAX
            });
            let answer = post();
            assert_eq!(answer.status, 200, "{name}, after {from}: {}", answer.body);
            assert_eq!(content(&answer), *expected, "{name}, after {from}");
        }
    }
    let growth = failing::bytes().wrapping_sub(before).cast_signed();
    print(&format!(
        "{name}: {count} allocations, failures at all places {step} apart: {errors} errors, {growth} bytes more"
    ));
    assert!(growth < GROWTH_MAX, "{name}: {growth} bytes leaked");
}

/// A body that arrives slowly uses more of the reserve than may be in use. Until it ends, other requests are errors, and
/// `/health` still answers.
fn use_up_reserve(server: &TestServer) {
    let completion = json!({ "prompt": "Once", "max_tokens": 2 });
    let post = || server.post("/v1/completions", &completion).status;
    let answers = || {
        let mut slow = server.connect();
        let head = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8000000\r\n\r\n";
        slow.write_all(head.as_bytes()).expect("sent");
        slow.write_all(&vec![b' '; 6_000_000]).expect("sent");
        wait_until("a request is refused", || post() == 503);
        assert_eq!(server.get("/health").status, 200);
        drop(slow);
        wait_until("requests are answered again", || post() == 200);
    };
    with_failures(0, u64::MAX, || exempt(answers));
}
