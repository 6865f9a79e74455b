//! Errors of requests: the field that they name, and their messages.

use crate::client::{TestServer, config};
use crate::request_names::NAMES;
use serde_json::{Value, json};
use tabla::embed::Pooling;
use tabla_testkit::fixed_json;

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETIONS: &str = "/v1/completions";
pub(crate) const RESPONSES: &str = "/v1/responses";
pub(crate) const MESSAGES: &str = "/v1/messages";
pub(crate) const COMPLETION: &str = "/completion";

/// Returns a small valid request of an endpoint.
fn valid(path: &str) -> Value {
    let messages = fixed_json!([{ "role": "user", "content": "a" }]);
    match path.trim_start_matches("/v1") {
        "/chat/completions"
        | "/chat/completions/input_tokens"
        | "/messages"
        | "/messages/count_tokens"
        | "/apply-template" => json!({ "messages": messages, "max_tokens": 1 }),
        "/completions" => fixed_json!({ "prompt": "a", "max_tokens": 1 }),
        "/responses" | "/responses/input_tokens" => {
            fixed_json!({ "input": "a", "max_output_tokens": 1 })
        }
        "/completion" => fixed_json!({ "prompt": "a", "n_predict": 1 }),
        "/infill" => fixed_json!({ "input_prefix": "a", "n_predict": 1 }),
        "/embedding" | "/embeddings" => fixed_json!({ "input": "a" }),
        "/rerank" => fixed_json!({ "query": "a", "documents": ["b"] }),
        "/classify" => fixed_json!({ "input": "a" }),
        "/predict" => fixed_json!({ "inputs": "a" }),
        "/tokenize" => fixed_json!({ "content": "a" }),
        "/detokenize" => fixed_json!({ "tokens": [1] }),
        "/score" => fixed_json!({ "prompt": "a", "continuations": ["b"] }),
        "/activations" => fixed_json!({ "input": "a", "points": ["blk.0"] }),
        other => panic!("no request for {other}"),
    }
}

/// Returns the request with further fields.
pub(crate) fn with(path: &str, extra: &Value) -> Value {
    let mut request = valid(path);
    for (name, value) in extra.as_object().expect("an object") {
        request[name] = value.clone();
    }
    request
}

/// Checks that each request is an error with status 400 that names the field.
pub(crate) fn check(server: &TestServer, rows: &[(&str, Value, &str)]) {
    for (path, extra, param) in rows {
        let answer = server.post(path, &with(path, extra));
        assert_eq!(answer.status, 400, "{path} {extra}: {}", answer.body);
        let error = &answer.json()["error"];
        let message = error["message"].as_str().expect("a message");
        assert!(
            message.starts_with(&format!("{param}: ")),
            "{path} {extra}: {message}"
        );
        // Anthropic's errors have no such field.
        if *path != MESSAGES {
            assert_eq!(error["param"], *param, "{path} {extra}");
        }
    }
}

#[test]
fn fields_of_sampling_are_named() {
    let server = TestServer::new();
    check(
        &server,
        &[
            (CHAT, json!({ "stop": vec!["x"; 65] }), "stop"),
            (CHAT, json!({ "stop": ["x", "y".repeat(2000)] }), "stop[1]"),
            (
                MESSAGES,
                json!({ "stop_sequences": vec!["x"; 65] }),
                "stop_sequences",
            ),
            (
                CHAT,
                json!({ "stop_token_ids": vec![1; 65] }),
                "stop_token_ids",
            ),
            (
                CHAT,
                fixed_json!({ "stop_token_ids": [1, "a"] }),
                "stop_token_ids[1]",
            ),
            (
                CHAT,
                fixed_json!({ "dry_sequence_breakers": [""] }),
                "dry_sequence_breakers[0]",
            ),
            (
                COMPLETION,
                fixed_json!({ "repeat_penalty": 0 }),
                "repeat_penalty",
            ),
            (
                CHAT,
                fixed_json!({ "repetition_penalty": 1000 }),
                "repetition_penalty",
            ),
            (
                COMPLETION,
                fixed_json!({ "repeat_last_n": 5000 }),
                "repeat_last_n",
            ),
            (COMPLETION, fixed_json!({ "dry_base": 0.5 }), "dry_base"),
            (
                COMPLETION,
                fixed_json!({ "mirostat_tau": -1 }),
                "mirostat_tau",
            ),
            (COMPLETION, fixed_json!({ "n_probs": 21 }), "n_probs"),
            (
                COMPLETION,
                fixed_json!({ "post_sampling_probs": true }),
                "post_sampling_probs",
            ),
        ],
    );
}

#[test]
fn fields_of_conversations_are_named() {
    let server = TestServer::new();
    let kwargs = "chat_template_kwargs";
    check(
        &server,
        &[
            (CHAT, json!({ kwargs: "a" }), kwargs),
            (RESPONSES, json!({ kwargs: [1] }), kwargs),
            (MESSAGES, json!({ kwargs: true }), kwargs),
            ("/apply-template", json!({ kwargs: 1 }), kwargs),
            (
                CHAT,
                fixed_json!({ "functions": [{ "name": "" }] }),
                "functions[0].name",
            ),
            (CHAT, fixed_json!({ "function_call": "x" }), "function_call"),
            (
                CHAT,
                fixed_json!({ "tools": [{ "type": "function" }] }),
                "tools[0].function",
            ),
            (
                CHAT,
                fixed_json!({ "stream_options": { "include_usage": 1 } }),
                "stream_options.include_usage",
            ),
            (RESPONSES, fixed_json!({ "input": null }), "input"),
            (
                RESPONSES,
                fixed_json!({ "input": null, "instructions": "a" }),
                "input",
            ),
            ("/tokenize", fixed_json!({ "prompt": "a" }), "content"),
        ],
    );
    let answer = server.post(RESPONSES, &with(RESPONSES, &fixed_json!({ "input": "" })));
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn fields_with_too_long_prompts_are_named() {
    let server = TestServer::new();
    let long = "word ".repeat(4000);
    for (path, field) in [
        (COMPLETIONS, "prompt"),
        (COMPLETION, "prompt"),
        ("/infill", "input_prefix"),
        (RESPONSES, "input"),
        ("/activations", "input"),
    ] {
        let answer = server.post(path, &with(path, &json!({ field: long })));
        let error = &answer.json()["error"];
        let found = (answer.status, error["param"].as_str());
        assert_eq!(found, (400, Some(field)), "{path}: {error}");
    }
}

#[test]
fn messages_name_types_of_json() {
    let server = TestServer::new();
    for (extra, message) in [
        (
            fixed_json!({ "stream_options": 1 }),
            "stream_options: expected an object, got 1",
        ),
        (
            fixed_json!({ "messages": "Hi" }),
            "messages: expected a list, got \"Hi\"",
        ),
        (
            fixed_json!({ "temperature": "hot" }),
            "temperature: expected a number, got \"hot\"",
        ),
        (
            fixed_json!({ "top_k": 1.5 }),
            "top_k: expected an integer, got 1.5",
        ),
        (
            fixed_json!({ "stop": [1] }),
            "stop: expected a string or a list of strings, got a list",
        ),
        (
            json!({ "model": "a".repeat(30), "stream": "a".repeat(30) }),
            "stream: expected a boolean, got a string",
        ),
        (
            fixed_json!({ "tools": [1] }),
            "tools[0].function: expected an object",
        ),
    ] {
        let error = server.post(CHAT, &with(CHAT, &extra)).json();
        assert_eq!(error["error"]["message"], message);
    }
}

/// Clients of OpenAI and Anthropic send a request again after any status from 500.
#[test]
fn requests_that_the_model_cannot_answer_are_user_errors() {
    let text = TestServer::new();
    let mut config = config();
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    config.models[0].source = tabla::Source::from(&golden.join("arch/bert/hf"));
    let encoder = TestServer::with(config);
    let form = b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\na\r\n--x--\r\n";
    let headers = [("content-type", "multipart/form-data; boundary=x")];
    for path in ["/v1/audio/transcriptions", "/v1/audio/translations"] {
        let answer = text.send("POST", path, &headers, form);
        let found = (answer.status, answer.json()["error"]["param"].clone());
        assert_eq!(found, (400, json!("model")), "{path}: {}", answer.body);
    }
    let of_text = ["/embeddings", "/rerank", "/classify", "/predict", "/infill"];
    let of_encoder = [
        CHAT,
        COMPLETIONS,
        RESPONSES,
        MESSAGES,
        COMPLETION,
        "/responses/input_tokens",
        "/messages/count_tokens",
        "/apply-template",
        "/infill",
        "/rerank",
        "/classify",
        "/predict",
        "/score",
        "/activations",
    ];
    let of_text = of_text.iter().map(|path| (&text, *path));
    for (server, path) in of_text.chain(of_encoder.iter().map(|path| (&encoder, *path))) {
        let answer = server.post(path, &valid(path));
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        let error = &answer.json()["error"];
        match path.contains("messages") {
            true => assert_eq!(error["type"], "invalid_request_error", "{path}"),
            false => assert_eq!(error["param"], "model", "{path}: {error}"),
        }
    }
}

#[test]
fn inputs_of_a_list_are_named() {
    let server = TestServer::new();
    let long = "word ".repeat(4000);
    check(
        &server,
        &[
            (COMPLETIONS, fixed_json!({ "prompt": [] }), "prompt"),
            (
                COMPLETIONS,
                fixed_json!({ "prompt": ["a", 1.5] }),
                "prompt[1]",
            ),
            (COMPLETIONS, json!({ "prompt": ["a", long] }), "prompt[1]"),
            (
                COMPLETIONS,
                fixed_json!({ "prompt": [[1], [-1]] }),
                "prompt[1]",
            ),
            (
                "/score",
                json!({ "continuations": ["a", long] }),
                "continuations[1]",
            ),
            (
                "/score",
                fixed_json!({ "continuations": [1] }),
                "continuations[0]",
            ),
            (CHAT, fixed_json!({ "messages": [] }), "messages"),
        ],
    );
}

/// The template cannot render arguments that are no object; others render the text.
#[test]
fn arguments_of_calls_may_be_cut() {
    let cut = "{\"city\": \"Par";
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": cut } });
    let chat = json!({ "messages": [
        { "role": "user", "content": "a" },
        { "role": "assistant", "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "c", "content": "b" },
    ] });
    let item = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": cut });
    let output = fixed_json!({ "type": "function_call_output", "call_id": "c", "output": "b" });
    let responses = json!({ "input": [{ "role": "user", "content": "a" }, item, output] });
    let block = json!({ "type": "tool_use", "id": "c", "name": "f", "input": cut });
    let messages = json!({ "messages": [
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": [block] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c", "content": "b" }] },
    ] });
    let template = |arguments: &str| {
        let mut config = config();
        let call = format!("{{% for c in m.tool_calls %}}<tool_call>{arguments}{{% endfor %}}");
        let template = format!("{{% for m in messages %}}{{{{ m.content }}}}{call}{{% endfor %}}");
        config.models[0].chat_template = Some(template);
        TestServer::with(config)
    };
    let strict = template("{% for k, v in c.function.arguments|items %}{{ k }}{{ v }}{% endfor %}");
    let arguments = "messages[1].tool_calls[0].function.arguments";
    check(
        &strict,
        &[
            (CHAT, chat.clone(), arguments),
            ("/apply-template", chat.clone(), arguments),
            (RESPONSES, responses.clone(), "input[1].arguments"),
            (MESSAGES, messages, "messages[1].content[0].input"),
        ],
    );
    let lenient = template("{{ c.function.arguments }}");
    let prompt = lenient.post("/apply-template", &chat).json()["prompt"].clone();
    assert_eq!(prompt, format!("a<tool_call>{cut}b"));
    for (path, request) in [(CHAT, &chat), (RESPONSES, &responses)] {
        let answer = lenient.post(path, &with(path, request));
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
}

/// Returns the fields of a schema of `/openapi.json`, each with the fields of its objects.
fn fields(document: &Value, schema: &Value) -> Vec<(String, Vec<String>)> {
    let resolved = |schema: &Value| {
        let text = schema.to_string();
        let name = text.split("#/components/schemas/").nth(1)?;
        let name = name.split('"').next()?;
        Some(document["components"]["schemas"][name].clone())
    };
    let names = |schema: &Value| -> Vec<String> {
        let properties = schema["properties"].as_object();
        properties
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect()
    };
    let own = resolved(schema).expect("a schema");
    let properties = own["properties"].as_object().expect("fields");
    let field = |(name, field): (&String, &Value)| {
        (
            name.clone(),
            resolved(field).map_or(Vec::new(), |inner| names(&inner)),
        )
    };
    properties.iter().map(field).collect()
}

/// Returns the groups of fields of the requests to a path of `/openapi.json`.
fn groups<'a>(document: &'a Value, path: &str) -> &'a [Value] {
    let operation = &document["paths"][path]["post"];
    let groups = operation.pointer("/requestBody/content/application~1json/schema/allOf");
    groups.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[test]
fn requests_have_the_options_of_the_lists() {
    let document = TestServer::new().get("/openapi.json").json();
    for (list, names) in NAMES {
        let paths: &[&str] = match list {
            "generate" => &[CHAT, COMPLETION],
            "chat" => &[CHAT],
            _ => &["/v1/embeddings"],
        };
        let groups = paths.iter().flat_map(|path| groups(&document, path));
        let known: Vec<_> = groups.flat_map(|group| fields(&document, group)).collect();
        for name in names {
            let is_known = known.iter().any(|(field, _)| field == name);
            assert!(is_known, "requests lack {name} of options/{list}.toml");
        }
    }
}

#[test]
fn no_message_has_names_of_rust() {
    let server = TestServer::new();
    let document = server.get("/openapi.json").json();
    let wrong = [
        json!(true),
        json!(-7),
        json!(1.5),
        json!("x"),
        json!([]),
        json!([[null]]),
        json!({}),
        json!({ "x": {} }),
    ];
    let names = [
        "struct ",
        "enum ",
        "variant",
        "Fields",
        "Option",
        "f32",
        "u32",
        "i64",
        "usize",
        "a sequence",
        "a map",
        "serde",
    ];
    let (mut sent, mut errors) = (0, 0);
    let mut seen = std::collections::HashSet::new();
    for path in document["paths"].as_object().expect("paths").keys() {
        for group in groups(&document, path) {
            // The groups that endpoints share are checked once.
            if !seen.insert(group.to_string()) {
                continue;
            }
            for (name, inner) in fields(&document, group) {
                let nested = inner
                    .iter()
                    .flat_map(|inner| wrong.iter().map(move |value| json!({ inner: value })));
                for value in wrong.iter().cloned().chain(nested) {
                    let extra = json!({ &name: value });
                    let answer = server.post(path, &with(path, &extra));
                    sent += 1;
                    assert!(
                        !matches!(answer.status, 0 | 500),
                        "{path} {extra}: {}",
                        answer.body
                    );
                    if answer.status < 400 {
                        continue;
                    }
                    assert!(answer.status < 500, "{path} {extra}: {}", answer.body);
                    errors += 1;
                    let error = &answer.json()["error"];
                    let message = error["message"].as_str().expect("a message");
                    let found = names.iter().find(|word| message.contains(**word));
                    assert_eq!(found, None, "{path} {extra}: {message}");
                    let is_named = message.contains(&name) || error["param"] == "model";
                    assert!(is_named, "{path} {extra}: {message}");
                }
            }
        }
    }
    assert!(
        sent > 800 && errors > 400,
        "{sent} requests, {errors} errors"
    );
}

#[test]
fn embeddings_without_a_pooling_name_the_option() {
    for pooling in [None, Some(Pooling::Mean)] {
        let mut config = config();
        config.load = config.load.embeddings(true);
        config.pooling = pooling;
        let server = TestServer::with(config);
        let answer = server.post("/v1/embeddings", &fixed_json!({ "input": "a" }));
        match pooling {
            None => assert!(
                answer.status == 400 && answer.body.contains("--pooling"),
                "{}",
                answer.body
            ),
            Some(_) => assert_eq!(answer.status, 200, "{}", answer.body),
        }
    }
}

#[test]
fn errors_quote_little_of_a_request() {
    let mut config = config();
    config.strict_model = true;
    let server = TestServer::with(config);
    let long = "x\" \u{e9}".repeat(5000);
    let word = "x".repeat(20_000);
    for text in [&long, &word] {
        let tool = json!({ "type": "function", "function": { "name": text } });
        for (path, extra) in [
            (COMPLETIONS, json!({ "model": text })),
            (MESSAGES, json!({ "model": text })),
            (CHAT, json!({ "tool_choice": text })),
            (
                CHAT,
                json!({ "tool_choice": { "function": { "name": text } } }),
            ),
            (CHAT, json!({ "tools": [tool] })),
            (CHAT, json!({ "messages": [{ "role": text }] })),
            (CHAT, json!({ "response_format": { "type": text } })),
            (CHAT, json!({ "json_schema": { "type": text } })),
            (CHAT, json!({ "guided_regex": format!("({text}") })),
            (COMPLETION, json!({ "grammar": format!("root ::= {text}") })),
            (COMPLETIONS, json!({ "temperature": text })),
            (COMPLETIONS, json!({ "prompt": [[text]] })),
            (
                COMPLETIONS,
                json!({ "logit_bias": { text.as_str(): text } }),
            ),
            (RESPONSES, json!({ "previous_response_id": text })),
            (
                RESPONSES,
                json!({ "input": [{ "type": "item_reference", "id": text }] }),
            ),
            ("/v1/embeddings", json!({ "encoding_format": text })),
            ("/activations", json!({ "points": [text] })),
        ] {
            let answer = server.post(path, &with(path, &extra));
            assert!(
                (400..500).contains(&answer.status) || answer.status == 501,
                "{path}: {}",
                answer.status
            );
            let message = answer.json()["error"]["message"].clone();
            let count = message.as_str().map_or(0, |text| text.chars().count());
            assert!((1..=1100).contains(&count), "{path}: {count} characters");
        }
        let answer = server.get(&format!("/{word}"));
        assert!(answer.body.len() < 500, "{}", answer.body.len());
    }
}
