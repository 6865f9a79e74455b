//! Tests of values that requests without them get.

use crate::client::{TestServer, config};
use serde_json::{Value, json};
use tabla::Overflow;
use tabla::op::sampler::SamplerKind;

fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => panic!("{other} is no object"),
    }
}

#[test]
fn requests_have_the_defaults_of_the_server() {
    let mut config = config();
    config.request_defaults = object(
        json!({ "n_predict": 3, "max_output_tokens": 3, "temperature": 0.0, "repetition_penalty": 1.5 }),
    );
    let server = TestServer::with(config);
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let generated = |path: &str, body: Value| {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    };
    let completion = generated("/v1/completions", json!({ "prompt": "Once" }));
    assert_eq!(completion["usage"]["completion_tokens"], 3);
    let again = generated("/v1/completions", json!({ "prompt": "Once" }));
    assert_eq!(
        completion["choices"][0]["text"],
        again["choices"][0]["text"]
    );
    let own = generated(
        "/v1/completions",
        json!({ "prompt": "Once", "max_tokens": 2 }),
    );
    assert_eq!(own["usage"]["completion_tokens"], 2);
    let native = generated("/completion", json!({ "prompt": "Once" }));
    assert_eq!(native["tokens_predicted"], 3);
    let chat = generated("/v1/chat/completions", json!({ "messages": messages }));
    assert_eq!(chat["usage"]["completion_tokens"], 3);
    let props = server.get("/props").json()["default_generation_settings"]["params"].clone();
    assert_eq!(
        (&props["n_predict"], &props["temperature"]),
        (&json!(3), &json!(0.0))
    );
    assert_eq!(props["repeat_penalty"], 1.5);
    let response = generated("/v1/responses", json!({ "input": "Hi" }));
    assert_eq!(response["usage"]["output_tokens"], 3);
}

#[test]
fn null_and_a_byte_order_mark_leave_the_defaults() {
    let mut config = config();
    config.request_defaults = object(json!({ "n_predict": 3, "max_output_tokens": 3 }));
    let server = TestServer::with(config);
    let generated = |path: &str, body: &str| {
        let answer = server.send("POST", path, &[], body.as_bytes());
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    };
    let messages = r#""messages": [{"role": "user", "content": "Hi"}]"#;
    let completion = r#"{"prompt": "Once", "max_tokens": null, "n_predict": null}"#;
    for body in [completion, "\u{feff}{\"prompt\": \"Once\"}"] {
        let answer = generated("/v1/completions", body);
        assert_eq!(answer["usage"]["completion_tokens"], 3, "{body}");
        assert_eq!(generated("/completion", body)["tokens_predicted"], 3);
    }
    let chat = format!("{{{messages}, \"max_completion_tokens\": null}}");
    let answer = generated("/v1/chat/completions", &chat);
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    let response = r#"{"input": "Hi", "max_output_tokens": null}"#;
    let answer = generated("/v1/responses", response);
    assert_eq!(answer["usage"]["output_tokens"], 3);
}

#[test]
fn defaults_keep_the_positions_of_errors() {
    let faulty = r#"{"prompt": "\ud800"}"#;
    let message = |defaults: Value| {
        let mut config = config();
        config.request_defaults = object(defaults);
        let server = TestServer::with(config);
        let answer = server.send("POST", "/v1/completions", &[], faulty.as_bytes());
        answer.json()["error"]["message"].clone()
    };
    let without = message(json!({}));
    assert!(
        without
            .as_str()
            .is_some_and(|text| text.contains("line 1 column"))
    );
    assert_eq!(message(json!({ "temperature": 0.5 })), without);
}

#[test]
fn templates_have_the_variables_of_the_server() {
    let mut config = config();
    let model = &mut config.models[0];
    model.chat_template = Some("{{ a }} {{ b }}{% for m in messages %}{% endfor %}".to_string());
    model.template_variables = object(json!({ "a": "first", "b": "second" }));
    let server = TestServer::with(config);
    let prompt = |variables: Value| {
        let messages = json!([{ "role": "user", "content": "Hi" }]);
        let body = json!({ "messages": messages, "chat_template_kwargs": variables });
        server.post("/apply-template", &body).json()["prompt"].clone()
    };
    assert_eq!(prompt(json!({})), "first second");
    assert_eq!(prompt(json!({ "b": "own" })), "first own");
}

#[test]
fn a_context_shift_continues_at_a_full_context() {
    let finish = |overflow| {
        let mut config = config();
        config.load = config.load.max_context(32);
        config.models[0].overflow = overflow;
        let server = TestServer::with(config);
        let answer = |n_predict: u32| {
            let prompt = "Once upon a time";
            let body = json!({ "prompt": prompt, "n_predict": n_predict, "ignore_eos": true });
            server.post("/completion", &body).json()
        };
        let (short, long) = (answer(5), answer(50));
        assert_eq!(short["truncated"], false);
        assert_eq!(long["truncated"], true);
        let kept = long["generation_settings"]["n_keep"].clone();
        let props = server.get("/props").json();
        let params = &props["default_generation_settings"]["params"];
        assert_eq!(params["n_keep"], kept);
        (long["tokens_predicted"].as_u64(), kept)
    };
    let shift = |n_keep| finish(Overflow::Shift { n_keep });
    assert_eq!(shift(2), (Some(50), json!(2)));
    assert_eq!(shift(u32::MAX), (Some(50), json!(-1)));
    let (generated, kept) = finish(Overflow::Stop);
    assert!(generated < Some(32));
    assert_eq!(kept, 0);
}

#[test]
fn requests_have_the_samplers_of_the_server() {
    let with_samplers = || {
        let mut config = config();
        let kinds = vec![SamplerKind::TopK, SamplerKind::Temperature];
        config.load = config.load.samplers(Some(kinds));
        config
    };
    let server = TestServer::with(with_samplers());
    let body = json!({ "prompt": "Once", "n_predict": 1, "top_k": 3 });
    let settings = server.post("/completion", &body).json()["generation_settings"].clone();
    assert_eq!(settings["samplers"], json!(["top_k", "temperature"]));
    assert_eq!(settings["top_p"], 1.0);
    let body = json!({ "prompt": "Once", "n_predict": 1, "top_p": 0.5 });
    for path in ["/completion", "/v1/completions"] {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert_eq!(answer.json()["error"]["param"], "top_p");
    }
    let mut config = with_samplers();
    config.request_defaults = object(json!({ "top_p": 0.5 }));
    let server = tabla_server::Server::bind(config).expect("a free port");
    let error = server.run().expect_err("no such sampler");
    assert!(error.to_string().contains("--samplers"), "{error}");
}

#[test]
fn invalid_variables_are_named() {
    let server = TestServer::new();
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let body = json!({ "messages": messages, "chat_template_kwargs": { "messages": 1 } });
    for path in ["/v1/chat/completions", "/apply-template"] {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 400, "{}", answer.body);
        let param = &answer.json()["error"]["param"];
        assert_eq!(param, "chat_template_kwargs.messages");
    }
}

#[test]
fn invalid_defaults_are_refused() {
    for (defaults, expected) in [
        (json!({ "top_p": 2 }), "top_p"),
        // Only the model has the size of the vocabulary.
        (json!({ "logit_bias": [[99_999_999, 1]] }), "--logit-bias"),
    ] {
        let mut config = config();
        config.request_defaults = object(defaults);
        let server = tabla_server::Server::bind(config).expect("a free port");
        let error = server.run().expect_err("invalid defaults");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
