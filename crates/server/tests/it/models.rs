//! Models, health, metrics and the shutdown.

use crate::client::{TestServer, config};
use crate::limits::{running, wait_until, waiting};
use serde_json::json;
use std::time::{Duration, Instant};
use tabla_server::{MetricsCompat, ServerEvent};
use tabla_testkit::fixed_json;

#[test]
fn models_are_found_by_name_and_alias() {
    let server = TestServer::new();
    let list = server.get("/v1/models").json();
    let model = &list["data"][0];
    assert_eq!(
        (&model["id"], &model["object"], &model["type"]),
        (&json!("story"), &json!("model"), &json!("model"))
    );
    for path in [
        "/v1/models/story",
        "/models/story",
        "/v1/models/org/alias:q8",
        "/v1/models/org%2Falias%3Aq8",
        "//v1//models/story/?x=1",
    ] {
        let answer = server.get(path);
        assert_eq!(
            (answer.status, answer.json()["id"].as_str()),
            (200, Some("story")),
            "{path}"
        );
    }
    for path in ["/v1/models/none", "/v1/models/..%2f..%2fetc%2fpasswd"] {
        let answer = server.get(path);
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (404, Some("model_not_found")),
            "{path}"
        );
    }
}

/// Returns the status, the model and the error of a completion with an unknown model name, which is requested twice,
/// and the number of warnings.
fn with_unknown_name(config: tabla_server::Config) -> (u16, serde_json::Value, usize) {
    let server = TestServer::with(config);
    let request = fixed_json!({ "model": "gpt-4o", "prompt": "a", "max_tokens": 1 });
    server.post("/v1/completions", &request);
    let answer = server.post("/v1/completions", &request);
    let events = server.events.lock().expect("no panic");
    let names_it = |event: &&ServerEvent| matches!(event, ServerEvent::Warning(text) if text.contains("\"gpt-4o\""));
    (
        answer.status,
        answer.json(),
        events.iter().filter(names_it).count(),
    )
}

#[test]
fn the_only_model_answers_requests_with_unknown_names() {
    let (status, answer, warnings) = with_unknown_name(config());
    assert_eq!((status, &answer["model"]), (200, &json!("story")));
    assert_eq!(warnings, 1);
    let mut strict = config();
    strict.strict_model = true;
    let mut several = config();
    let mut second = several.models[0].clone();
    second.name = "second".to_string();
    second.aliases.clear();
    several.models.push(second);
    for config in [strict, several] {
        let (status, answer, warnings) = with_unknown_name(config);
        let error = &answer["error"];
        assert_eq!(
            (status, &error["code"], &error["param"], warnings),
            (404, &json!("model_not_found"), &json!("model"), 0)
        );
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains("story, org/alias:q8"), "{message}");
    }
}

#[test]
fn clients_of_anthropic_get_its_shape() {
    let mut config = config();
    for name in ["second", "third"] {
        let mut model = config.models[0].clone();
        model.name = name.to_string();
        model.aliases.clear();
        config.models.push(model);
    }
    let server = TestServer::with(config);
    let headers = [("anthropic-version", "2023-06-01")];
    let get = |path: &str| server.send("GET", path, &headers, b"");
    let one = get("/v1/models/org%2Falias%3Aq8").json();
    let mut fields: Vec<&String> = one.as_object().expect("an object").keys().collect();
    fields.sort();
    // The fields of `ModelInfo` in version 2.14 of Anthropic's client.
    let expected = [
        "capabilities",
        "created_at",
        "deprecated_at",
        "display_name",
        "id",
        "lifecycle",
        "line",
        "max_input_tokens",
        "max_tokens",
        "retires_at",
        "type",
    ];
    assert_eq!(fields, expected);
    assert_eq!(
        (&one["type"], &one["id"]),
        (&json!("model"), &json!("story"))
    );
    assert_eq!(
        one["created_at"].as_str().map(str::len),
        Some("2026-11-28T05:30:00Z".len())
    );
    for (query, ids, has_more) in [
        ("", &["story", "second", "third"][..], false),
        ("?limit=2", &["story", "second"], true),
        ("?limit=2&after_id=second", &["third"], false),
        ("?limit=1&before_id=third", &["second"], true),
        ("?before_id=story", &[], false),
    ] {
        let page = get(&format!("/v1/models{query}")).json();
        let data = page["data"].as_array().expect("models").iter();
        let found: Vec<&str> = data.filter_map(|model| model["id"].as_str()).collect();
        assert_eq!(found, ids, "{query}");
        assert_eq!(page["has_more"], has_more, "{query}");
        assert_eq!(page["first_id"].as_str(), ids.first().copied(), "{query}");
        assert_eq!(page["last_id"].as_str(), ids.last().copied(), "{query}");
        assert_eq!(page.get("object"), None);
    }
    for (path, status, kind) in [
        ("/v1/models/none", 404, "not_found_error"),
        ("/v1/models?limit=0", 400, "invalid_request_error"),
        ("/v1/models?after_id=none", 400, "invalid_request_error"),
    ] {
        let answer = get(path);
        let error = answer.json();
        assert_eq!(
            (answer.status, &error["error"]["type"]),
            (status, &json!(kind)),
            "{path}"
        );
        assert_eq!(error["type"], "error");
    }
    assert_eq!(server.get("/v1/models").json()["object"], "list");
}

#[test]
fn models_are_loaded_on_demand_and_unloaded() {
    let mut config = config();
    let mut second = config.models[0].clone();
    second.name = "second".to_string();
    second.aliases.clear();
    config.models.push(second);
    config.idle_time = Some(Duration::from_millis(300));
    let server = TestServer::with(config);
    let status = |name: &str| server.get(&format!("/v1/models/{name}")).json()["status"].clone();
    assert_eq!(status("second"), "unloaded");
    let answer = server.post(
        "/v1/completions",
        &fixed_json!({ "model": "second", "prompt": "a", "max_tokens": 1 }),
    );
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(status("second"), "loaded");
    let begun = Instant::now();
    while status("second") == "loaded" {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the model was not unloaded"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(
        server
            .post(
                "/v1/completions",
                &fixed_json!({ "model": "second", "prompt": "a", "max_tokens": 1 })
            )
            .status,
        200
    );
}

#[test]
fn a_memory_budget_unloads_the_oldest_idle_model() {
    let mut config = config();
    let mut second = config.models[0].clone();
    second.name = "second".to_string();
    second.aliases.clear();
    config.models.push(second);
    let estimate =
        tabla::tools::estimate(&tabla::Source::BuiltIn, &config.load).expect("an estimate");
    config.memory_budget = Some(estimate.device_bytes * 3 / 2);
    let server = TestServer::with(config);
    for name in ["story", "second", "story"] {
        let answer = server.post(
            "/v1/completions",
            &json!({ "model": name, "prompt": "a", "max_tokens": 1 }),
        );
        assert_eq!(answer.status, 200, "{}", answer.body);
        let list = server.get("/v1/models").json();
        let loaded = list["data"]
            .as_array()
            .expect("models")
            .iter()
            .filter(|m| m["status"] == "loaded");
        let loaded: Vec<&str> = loaded.filter_map(|model| model["id"].as_str()).collect();
        assert_eq!(loaded, [name]);
    }
}

#[test]
fn metrics_count_tokens() {
    let server = TestServer::new();
    let request = fixed_json!({ "prompt": "Once upon a time", "max_tokens": 5 });
    assert_eq!(server.post("/v1/completions", &request).status, 200);
    let metrics = server.get("/metrics");
    for line in [
        "tabla_generation_tokens_total{model=\"story\"} 5",
        "tabla_requests_total{model=\"story\",finish_reason=\"length\"} 1",
        "tabla_time_to_first_token_seconds_count{model=\"story\"} 1",
        "tabla_inter_token_latency_seconds_bucket{model=\"story\",le=\"+Inf\"} 4",
    ] {
        assert!(
            metrics.body.lines().any(|other| other == line),
            "{line}\n{}",
            metrics.body
        );
    }
    assert_eq!(server.get("/props").json()["total_slots"], 4);
    assert_eq!(
        server.get("/slots").json().as_array().map(Vec::len),
        Some(4)
    );
}

#[test]
fn health_is_unavailable_until_the_first_model_is_loaded() {
    for _ in 0..10 {
        let server = TestServer::start(config());
        let mut statuses = Vec::new();
        while statuses.iter().filter(|status| **status == 200).count() < 3 {
            statuses.push(server.get("/health").status);
        }
        assert!(statuses.is_sorted_by(|a, b| a >= b), "{statuses:?}");
    }
}

#[test]
fn running_requests_finish_after_the_shutdown_began() {
    let mut server = TestServer::new();
    assert_eq!(server.get("/health").status, 200);
    let answer = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let request =
                fixed_json!({ "prompt": "Once", "max_tokens": 200, "ignore_eos": true, "stream": true });
            server.post("/v1/completions", &request)
        });
        let is_running = || {
            server
                .get("/metrics")
                .body
                .contains("tabla_requests_running{model=\"story\"} 1")
        };
        let begun = Instant::now();
        while !is_running() && begun.elapsed() < Duration::from_secs(60) && !running.is_finished() {
        }
        server.shut_down();
        running.join().expect("no panic")
    });
    assert_eq!(answer.status, 200);
    assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
    server.join();
    let events = server.events.lock().expect("no panic");
    assert!(
        events
            .iter()
            .any(|event| matches!(event, ServerEvent::Draining(_)))
    );
}

#[test]
fn streams_end_with_an_error_when_the_shutdown_cancels_them() {
    let mut config = config();
    config.limits.drain_time = Duration::from_millis(50);
    let mut server = TestServer::with(config);
    let answers = std::thread::scope(|scope| {
        let request = |stream: bool| {
            let request = json!({ "prompt": "Once", "max_tokens": 100_000, "ignore_eos": true, "logprobs": 20, "stream": stream });
            let server = &server;
            scope.spawn(move || server.post("/v1/completions", &request))
        };
        let running = [request(true), request(false)];
        let begun = Instant::now();
        let is_running = || {
            server
                .get("/metrics")
                .body
                .contains("tabla_requests_running{model=\"story\"} 2")
        };
        while !is_running() && begun.elapsed() < Duration::from_secs(2) {}
        server.shut_down();
        running.map(|thread| thread.join().expect("no panic"))
    });
    let [stream, whole] = answers;
    // The generations may have ended before.
    let is_done = stream.body.ends_with("data: [DONE]\n\n");
    assert!(
        is_done || stream.body.contains("the server is shutting down"),
        "{}",
        stream.body.len()
    );
    assert!(matches!(whole.status, 200 | 503), "{}", whole.status);
    server.join();
}

#[test]
fn a_first_model_that_cannot_be_loaded_ends_the_server() {
    let mut config = config();
    config.models[0].source = tabla::Source::Path("/nonexistent/model.gguf".into());
    let server = tabla_server::Server::bind(config).expect("a free port");
    let error = server.run().expect_err("the model does not exist");
    // The event has the reason.
    assert_eq!(error.to_string(), "the model story cannot be loaded");
    let mut config = crate::client::config();
    config.memory_budget = Some(1);
    let server = tabla_server::Server::bind(config).expect("a free port");
    let error = server.run().expect_err("the model is too large");
    assert!(
        error.to_string().contains("more than the memory budget"),
        "{error}"
    );
}

#[test]
fn models_have_different_names() {
    let mut config = config();
    config.models.push(config.models[0].clone());
    let server = tabla_server::Server::bind(config).expect("a free port");
    let error = server.run().expect_err("one name");
    assert!(error.to_string().contains("-m NAME=FILE"), "{error}");
}

#[test]
fn properties_do_not_load_a_model() {
    let mut config = config();
    let mut second = config.models[0].clone();
    second.name = "second".to_string();
    second.aliases.clear();
    config.models.push(second);
    let server = TestServer::with(config);
    let props = || server.get("/props?model=second").json();
    let unloaded = props();
    assert_eq!(unloaded["is_sleeping"], true, "{unloaded}");
    assert_eq!(unloaded["model_alias"], "second");
    assert_eq!(unloaded["default_generation_settings"]["n_ctx"], 0);
    assert_eq!(server.get("/v1/models/second").json()["status"], "unloaded");
    let request = fixed_json!({ "model": "second", "prompt": "a", "max_tokens": 1 });
    assert_eq!(server.post("/v1/completions", &request).status, 200);
    let loaded = props();
    assert_eq!(loaded["is_sleeping"], false, "{loaded}");
    assert!(loaded["default_generation_settings"]["n_ctx"].as_u64() > Some(0));
    assert_eq!(server.get("/props?model=none").status, 404);
}

#[test]
fn metrics_have_the_names_of_other_servers() {
    for (compat, lines) in [
        (
            MetricsCompat::Vllm,
            [
                "vllm:generation_tokens_total{model_name=\"story\"} 5",
                "vllm:request_success_total{model_name=\"story\",finished_reason=\"length\"} 1",
                "vllm:time_to_first_token_seconds_count{model_name=\"story\"} 1",
            ],
        ),
        (
            MetricsCompat::LlamaCpp,
            [
                "llamacpp:tokens_predicted_total 5",
                "llamacpp:requests_processing 0",
                "tabla_generation_tokens_total{model=\"story\"} 5",
            ],
        ),
    ] {
        let mut config = config();
        config.metrics_compat = Some(compat);
        let server = TestServer::with(config);
        let request = fixed_json!({ "prompt": "Once upon a time", "max_tokens": 5 });
        assert_eq!(server.post("/v1/completions", &request).status, 200);
        let metrics = server.get("/metrics").body;
        for line in lines {
            assert!(
                metrics.lines().any(|other| other == line),
                "{line}\n{metrics}"
            );
        }
    }
}

#[test]
fn a_model_whose_file_was_overwritten_is_loaded_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("story.gguf");
    let content = include_bytes!("../../../../models/story.gguf");
    std::fs::write(&file, content).expect("written");
    let mut config = config();
    config.models[0].source = tabla::Source::from(&file);
    config.load = config.load.weights(tabla::load::WeightMemory::Mapped);
    let server = TestServer::with(config);
    let request = fixed_json!({ "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0 });
    let text = || {
        let answer = server.post("/v1/completions", &request);
        let text = answer.json()["choices"][0]["text"].clone();
        (answer.status, text)
    };
    let loads = || {
        let events = server.events.lock().expect("no panic");
        let loaded = events
            .iter()
            .filter(|event| matches!(event, ServerEvent::Loaded(..)));
        loaded.count()
    };
    let expected = text();
    assert_eq!((expected.0, loads()), (200, 1));
    assert_eq!((text(), loads()), (expected.clone(), 1));
    let written = std::fs::File::options()
        .write(true)
        .open(&file)
        .expect("a file");
    let later = std::time::SystemTime::now() + Duration::from_secs(5);
    written.set_modified(later).expect("another time");
    assert_eq!((text(), loads()), (expected, 2));
    // What is not a model any more is reported, and the server goes on.
    std::fs::write(&file, b"no model").expect("written");
    assert_eq!(text().0, 503);
    std::fs::write(&file, content).expect("written");
    assert_eq!(text().0, 200);
}

/// Clients repeat a request after status 503, and the answer does not name files.
#[test]
fn requests_that_wait_while_the_file_changes_can_be_repeated() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("story.gguf");
    let content = include_bytes!("../../../../models/story.gguf");
    std::fs::write(&file, content).expect("written");
    let mut config = config();
    config.models[0].source = tabla::Source::from(&file);
    config.load = config.load.weights(tabla::load::WeightMemory::Mapped);
    config.load = config.load.sequences(1);
    let server = TestServer::with(config);
    let long = fixed_json!({ "prompt": "Once", "ignore_eos": true, "max_tokens": 1900, "n": 16 });
    let completion = fixed_json!({ "prompt": "Once", "max_tokens": 2 });
    let scores = fixed_json!({ "prompt": "Once", "continuations": [" upon"] });
    for (path, request) in [("/v1/completions", &completion), ("/score", &scores)] {
        let running_request = server.hold("/v1/completions", &[], long.to_string().as_bytes());
        wait_until("the request runs", || running(&server) == 1);
        let answer = std::thread::scope(|scope| {
            let answer = scope.spawn(|| server.post(path, request));
            wait_until("the request waits", || waiting(&server) == 1);
            let written = std::fs::File::options().append(true).open(&file);
            let later = std::time::SystemTime::now() + Duration::from_secs(5);
            let changed = written.and_then(|file| file.set_modified(later));
            changed.expect("another time");
            drop(running_request);
            answer.join().expect("no panic")
        });
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["code"]), (503, &json!("model_lost")));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert!(!answer.body.contains(".gguf"), "{}", answer.body);
        assert_eq!(server.post(path, request).status, 200);
    }
}
