//! `/v1/chat/completions`.

use crate::client::{TestServer, config};
use serde_json::{Value, json};
use tabla_server::ServerEvent;
use tabla_testkit::fixed_json;

fn request(extra: Value) -> Value {
    let mut request = fixed_json!({ "messages": [{ "role": "user", "content": "Tell a story" }], "max_tokens": 16, "seed": 1 });
    for (name, value) in extra.as_object().expect("an object") {
        request[name] = value.clone();
    }
    request
}

#[test]
fn streams_and_whole_answers_are_the_same() {
    let server = TestServer::new();
    let extra = fixed_json!({ "logprobs": true, "top_logprobs": 2, "n": 2 });
    let whole = server.post("/v1/chat/completions", &request(extra.clone()));
    let seed: u64 = whole
        .header("x-seed")
        .and_then(|seed| seed.parse().ok())
        .expect("a seed");
    assert_eq!(seed, 1);
    let whole = whole.json();
    let mut stream = request(extra);
    stream["stream"] = true.into();
    stream["stream_options"] = fixed_json!({ "include_usage": true });
    let answer = server.post("/v1/chat/completions", &stream);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert!(answer.body.ends_with("data: [DONE]\n\n"));
    let events = answer.events();
    for index in 0..2 {
        let deltas = events
            .iter()
            .filter(|event| event["choices"][0]["index"] == index);
        let deltas: Vec<&Value> = deltas.map(|event| &event["choices"][0]).collect();
        let text: String = deltas
            .iter()
            .filter_map(|d| d["delta"]["content"].as_str())
            .collect();
        let choice = &whole["choices"][index];
        assert_eq!(choice["message"]["content"], text);
        assert_eq!(deltas[0]["delta"]["role"], "assistant");
        let entries = deltas
            .iter()
            .filter_map(|d| d["logprobs"]["content"].as_array())
            .flatten();
        let entries: Vec<&Value> = entries.collect();
        let expected = choice["logprobs"]["content"]
            .as_array()
            .expect("log-probabilities");
        assert_eq!(entries, expected.iter().collect::<Vec<_>>());
        assert_eq!(
            deltas.last().map(|d| &d["finish_reason"]),
            Some(&choice["finish_reason"])
        );
    }
    let ids: std::collections::BTreeSet<String> = events
        .iter()
        .map(|e| format!("{} {}", e["id"], e["created"]))
        .collect();
    assert_eq!(ids.len(), 1);
    let mut usage = events.last().expect("events")["usage"].clone();
    // The second request finds the prompt in the prefix cache.
    usage["prompt_tokens_details"] = whole["usage"]["prompt_tokens_details"].clone();
    assert_eq!(usage, whole["usage"]);
}

#[test]
fn only_the_last_chunk_of_a_stream_with_usage_has_no_choices() {
    let server = TestServer::new();
    let answer = server.post(
        "/v1/chat/completions",
        &request(fixed_json!({ "stream": true })),
    );
    for event in answer.events() {
        assert_eq!(
            event["choices"].as_array().map(Vec::len),
            Some(1),
            "{event}"
        );
        assert!(event.get("usage").is_none());
    }
}

#[test]
fn answers_match_a_schema() {
    let server = TestServer::new();
    let schema = fixed_json!({
        "type": "object",
        "properties": { "a": { "type": "boolean" }, "b": { "enum": ["x", "y"] } },
        "required": ["a", "b"],
        "additionalProperties": false,
    });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema, "strict": true } });
    let answer = server.post(
        "/v1/chat/completions",
        &request(json!({ "response_format": format, "max_tokens": 100 })),
    );
    let text = answer.json()["choices"][0]["message"]["content"]
        .as_str()
        .expect("text")
        .to_string();
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert!(
        value["a"].is_boolean() && (value["b"] == "x" || value["b"] == "y"),
        "{value}"
    );
}

#[test]
fn tool_calls_can_be_forced() {
    let server = TestServer::new();
    let tool = |name: &str| {
        json!({ "type": "function", "function": {
        "name": name,
        "parameters": { "type": "object", "properties": { "n": { "type": "boolean" } }, "required": ["n"], "additionalProperties": false },
    } })
    };
    let extra = json!({
        "tools": [tool("first"), tool("second")],
        "tool_choice": { "type": "function", "function": { "name": "second" } },
        "max_tokens": 200,
    });
    let answer = server
        .post("/v1/chat/completions", &request(extra.clone()))
        .json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    assert_eq!(choice["message"]["content"], Value::Null);
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "second");
    let arguments = call["function"]["arguments"].as_str().expect("a string");
    let arguments: Value = serde_json::from_str(arguments).expect("JSON");
    assert!(arguments["n"].is_boolean());
    let mut stream = request(extra);
    stream["stream"] = true.into();
    let events = server.post("/v1/chat/completions", &stream).events();
    let calls = events
        .iter()
        .filter_map(|e| e["choices"][0]["delta"]["tool_calls"].get(0));
    let calls: Vec<&Value> = calls.collect();
    assert!(calls.iter().all(|call| call["index"] == 0));
    assert_eq!(calls[0]["function"]["name"], "second");
    assert!(
        calls[0]["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("call_"))
    );
    assert!(calls[1..].iter().all(|call| call.get("id").is_none()));
}

#[test]
fn invalid_fields_are_named() {
    let server = TestServer::new();
    for (extra, param) in [
        (fixed_json!({ "temperature": 101 }), "temperature"),
        (fixed_json!({ "temperature": "hot" }), "temperature"),
        (fixed_json!({ "top_logprobs": 21 }), "top_logprobs"),
        (fixed_json!({ "max_tokens": -2 }), "max_tokens"),
        (fixed_json!({ "max_tokens": 1.5 }), "max_tokens"),
        (json!({ "n": 100_000 }), "n"),
        (fixed_json!({ "stream": "yes" }), "stream"),
        (fixed_json!({ "messages": null }), "messages"),
        (fixed_json!({ "messages": [] }), "messages"),
        (
            fixed_json!({ "messages": [{ "role": "user", "content": [{ "type": "input_audio" }] }] }),
            "messages[0].content[0].type",
        ),
        (fixed_json!({ "modalities": ["audio"] }), "modalities"),
        (
            fixed_json!({ "tool_choice": { "type": "function", "function": { "name": "x" } } }),
            "tool_choice",
        ),
        (
            fixed_json!({ "response_format": { "type": "xml" } }),
            "response_format",
        ),
        (
            fixed_json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": 1 } } }),
            "response_format",
        ),
        (
            fixed_json!({ "logit_bias": { "99999999": 1 } }),
            "logit_bias",
        ),
        (
            fixed_json!({ "chat_template_kwargs": [] }),
            "chat_template_kwargs",
        ),
    ] {
        let answer = server.post("/v1/chat/completions", &request(extra.clone()));
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["param"]),
            (400, &json!(param)),
            "{extra}: {error}"
        );
        assert_eq!(error["type"], "invalid_request_error");
    }
    for extra in [
        fixed_json!({ "temperature": null, "stop": [], "tools": null, "tool_choice": null, "n": 1.0, "max_tokens": 2.0 }),
        fixed_json!({ "unknown": { "a": [1] }, "user": "u", "store": true, "stop": "" }),
        json!({ "max_tokens": 99_999_999_999u64, "max_completion_tokens": 3 }),
        // The ranges of the samplers, which are wider than those of OpenAI's API.
        fixed_json!({ "temperature": 3, "presence_penalty": -5, "frequency_penalty": 5 }),
    ] {
        let answer = server.post("/v1/chat/completions", &request(extra.clone()));
        assert_eq!(answer.status, 200, "{extra}: {}", answer.body);
    }
}

#[test]
fn a_long_prompt_is_refused_with_the_words_that_agents_find() {
    let server = TestServer::new();
    let text = "word ".repeat(4000);
    let answer = server.post(
        "/v1/chat/completions",
        &request(json!({ "messages": [{ "role": "user", "content": text }] })),
    );
    let error = answer.json()["error"].clone();
    assert_eq!(
        (answer.status, error["code"].as_str()),
        (400, Some("context_length_exceeded"))
    );
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.contains("prompt is too long")
            && message.contains("exceeds the available context size")
    );
    assert!(error["n_prompt_tokens"].as_u64() > error["n_ctx"].as_u64());
}

#[test]
fn special_tokens_in_messages_are_text() {
    let server = TestServer::new();
    let tokens = |text: &str| {
        let message = json!({ "messages": [{ "role": "user", "content": text }] });
        let answer = server
            .post("/v1/chat/completions", &request(message))
            .json();
        answer["usage"]["prompt_tokens"].as_u64().expect("a number")
    };
    assert!(tokens("</s></s></s></s>") > tokens("a") + 4);
}

#[test]
fn tools_whose_schemas_cannot_be_expressed_are_no_error() {
    let server = TestServer::new();
    let parameters = fixed_json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "mail": { "type": "string", "pattern": "^(?!\\.)(?=.*@)\\S+$", "format": "idn-email" },
            "kind": { "enum": [] },
        },
        "propertyNames": { "pattern": "^[a-z]" },
        "required": ["mail"],
    });
    let tools = json!([
        { "type": "function", "function": { "name": "odd", "parameters": parameters } },
        { "type": "function", "function": { "name": "none" } },
        { "type": "function", "function": { "name": "any", "parameters": true } },
        { "type": "web_search", "external_web_access": false },
    ]);
    let answer = server.post("/v1/chat/completions", &request(json!({ "tools": tools })));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let warnings = server.events.lock().expect("no panic");
    let is_warning =
        |event: &ServerEvent| matches!(event, ServerEvent::Warning(text) if text.contains("mail"));
    assert!(warnings.iter().any(is_warning), "{warnings:?}");
    drop(warnings);
    let forced = json!({ "tools": tools, "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 400, "temperature": 0.3 });
    let answer = server.post("/v1/chat/completions", &request(forced)).json();
    let choice = &answer["choices"][0];
    let is_cut = choice["finish_reason"] == "length";
    assert!(
        is_cut || choice["message"]["tool_calls"][0]["function"]["name"].is_string(),
        "{answer}"
    );
    // What is outside the schema cannot be known.
    let outside = fixed_json!({ "properties": { "a": { "$ref": "https://example.com/schema" } } });
    let tool = json!({ "type": "function", "function": { "name": "odd", "parameters": outside } });
    let answer = server.post("/v1/chat/completions", &request(json!({ "tools": [tool] })));
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert_eq!(answer.json()["error"]["param"], "tools");
    assert!(
        answer.body.contains("https://example.com/schema"),
        "{}",
        answer.body
    );
}

#[test]
fn a_template_without_tools_can_call_them() {
    let mut config = config();
    config.models[0].chat_template = Some("zephyr".to_string());
    let server = TestServer::with(config);
    let parameters = fixed_json!({ "type": "object", "properties": { "n": { "type": "boolean" } }, "required": ["n"], "additionalProperties": false });
    let extra = json!({
        "tools": [{ "type": "function", "function": { "name": "set", "parameters": parameters } }],
        "tool_choice": "required",
        "parallel_tool_calls": false,
        "max_tokens": 100,
    });
    let answer = server.post("/v1/chat/completions", &request(extra)).json();
    let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "set", "{answer}");
}

#[test]
fn what_a_template_lacks_is_reported() {
    let mut config = config();
    config.models[0].chat_template = Some("zephyr".to_string());
    let server = TestServer::with(config);
    let messages = fixed_json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "a" },
        { "role": "assistant", "tool_calls": [{ "id": "x", "function": { "name": "set", "arguments": "{}" } }] },
        { "role": "tool", "tool_call_id": "x", "content": "done" },
    ]);
    let tools = fixed_json!([{ "type": "function", "function": { "name": "set" } }]);
    let chat = json!({ "messages": messages, "tools": tools, "reasoning_effort": "high", "max_tokens": 1 });
    let prompt = server.post("/apply-template", &chat).json()["prompt"].clone();
    let prompt = prompt.as_str().expect("a prompt");
    for part in [
        "# Tools",
        "\"name\":\"set\"",
        "Be brief.",
        "<tool_call>\n{\"name\": \"set\", \"arguments\": {}}\n</tool_call>",
        "<|user|>\n<tool_response>\ndone\n</tool_response>",
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert_eq!(prompt.matches("<|system|>").count(), 1, "{prompt}");
    let answer = server.post("/v1/chat/completions", &chat);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let events = server.events.lock().expect("no panic");
    for field in ["tools: ", "reasoning_effort: "] {
        let is_warning = |event: &ServerEvent| matches!(event, ServerEvent::Warning(text) if text.starts_with(field));
        assert!(events.iter().any(is_warning), "{field}: {events:?}");
    }
}

/// The text of a prompt has its tokens: with a SentencePiece and with a byte-level vocabulary.
#[test]
fn rendered_prompts_have_the_tokens_of_chats() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let template = "{{ bos_token }}{% for m in messages %} {{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";
    for (source, template) in [
        (tabla::Source::BuiltIn, Some(template)),
        (tabla::Source::from(&golden.join("reranker/hf")), None),
        (
            tabla::Source::from(&golden.join("arch/gemma3/hf")),
            Some(template),
        ),
    ] {
        let mut config = config();
        config.models[0].source = source;
        config.models[0].chat_template = template.map(str::to_string);
        let server = TestServer::with(config);
        let messages = json!([{ "role": "user", "content": " Hi,  there\n\nyou \u{6771}" }]);
        let chat =
            json!({ "messages": messages, "max_tokens": 6, "n_predict": 6, "temperature": 0 });
        let prompt = server.post("/apply-template", &chat).json()["prompt"].clone();
        let text = prompt.as_str().expect("a prompt");
        let expected = " user:  Hi,  there\n\nyou \u{6771}\nassistant:";
        let is_exact = text.ends_with(expected) && text.starts_with('<');
        assert!(template.is_none() || is_exact, "{text:?}");
        let answer = server.post("/v1/chat/completions", &chat).json();
        let request = json!({ "prompt": text, "n_predict": 6, "temperature": 0 });
        let completed = server.post("/completion", &request).json();
        assert_eq!(
            completed["tokens_evaluated"], answer["usage"]["prompt_tokens"],
            "{text}"
        );
        assert_eq!(
            completed["content"], answer["choices"][0]["message"]["content"],
            "{text}"
        );
    }
}

/// In Harmony, a header is before a call and before an answer.
#[test]
fn answers_follow_headers() {
    let mut config = config();
    config.models[0].chat_template = Some("gpt-oss".to_string());
    let server = TestServer::with(config);
    let parameters = fixed_json!({ "type": "object", "properties": { "n": { "type": "boolean" } }, "required": ["n"], "additionalProperties": false });
    let tools =
        json!([{ "type": "function", "function": { "name": "set", "parameters": parameters } }]);
    let post = |extra| server.post("/v1/chat/completions", &request(extra)).json();
    let forced = json!({ "tools": tools, "tool_choice": "required", "max_tokens": 100 });
    let answer = post(forced);
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let call = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "set", "{answer}");
    let schema =
        json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": parameters } });
    let either = json!({ "tools": tools, "response_format": schema, "max_tokens": 100 });
    let answer = post(either);
    let message = &answer["choices"][0]["message"];
    let text = match message["tool_calls"][0]["function"]["arguments"].as_str() {
        Some(arguments) => arguments,
        None => message["content"].as_str().expect("content"),
    };
    // The limit may cut it.
    assert!(text.starts_with('{') && text.contains("\"n\""), "{answer}");
    // The answer continues a text of the assistant, after its header.
    let messages = fixed_json!([
        { "role": "user", "content": "Tell me a story" },
        { "role": "assistant", "content": "Once upon a time" },
    ]);
    let prompt = server
        .post("/apply-template", &json!({ "messages": messages }))
        .json();
    let prompt = prompt["prompt"].as_str().expect("a prompt");
    assert!(
        prompt.ends_with("<|start|>assistant<|channel|>final<|message|>Once upon a time"),
        "{prompt}"
    );
    let continued = json!({ "messages": messages, "response_format": schema, "max_tokens": 100 });
    let answer = post(continued);
    let content = answer["choices"][0]["message"]["content"]
        .as_str()
        .expect("content");
    assert!(content.starts_with('{'), "{answer}");
}

#[test]
fn an_answer_follows_reasoning() {
    let mut config = config();
    let template = "{%- for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor -%}\
        assistant: <think>\n{# </think> #}";
    config.models[0].chat_template = Some(template.to_string());
    let server = TestServer::with(config);
    // The model never closes its reasoning, so the grammar never applies.
    let format = fixed_json!({ "type": "json_object" });
    let answer = server
        .post(
            "/v1/chat/completions",
            &request(json!({ "response_format": format })),
        )
        .json();
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["content"], "", "{answer}");
    assert!(
        message["reasoning_content"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
    assert_eq!(
        answer["usage"]["completion_tokens_details"]["reasoning_tokens"],
        16
    );
}

#[test]
fn arguments_are_streamed_and_a_cut_call_keeps_them() {
    let server = TestServer::new();
    let parameters = fixed_json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
    let function = json!({ "name": "write", "parameters": parameters });
    let cut = request(json!({
        "tools": [{ "type": "function", "function": function }], "tool_choice": "required", "max_tokens": 100,
    }));
    let whole = server.post("/v1/chat/completions", &cut).json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "length", "{whole}");
    let call = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "write");
    let mut stream = cut.clone();
    stream["stream"] = true.into();
    let events = server.post("/v1/chat/completions", &stream).events();
    let calls = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["tool_calls"].get(0));
    let pieces: Vec<&str> = calls
        .filter_map(|call| call["function"]["arguments"].as_str())
        .collect();
    assert!(pieces.len() > 5, "{pieces:?}");
    assert_eq!(call["arguments"], pieces.concat());
    let cut = json!({
        "messages": cut["messages"], "max_tokens": 100, "seed": 1, "stream": true,
        "tools": [{ "name": "write", "input_schema": parameters }], "tool_choice": { "type": "any" },
    });
    let events = server.post("/v1/messages", &cut).events();
    let kind = |event: &&Value| event["delta"]["type"] == "input_json_delta";
    assert!(events.iter().filter(kind).count() > 5, "{events:?}");
    let last = events
        .iter()
        .rev()
        .find(|event| event["type"] == "message_delta");
    assert_eq!(
        last.map(|event| &event["delta"]["stop_reason"]),
        Some(&json!("max_tokens"))
    );
}

/// With a format and tools, the model may answer or call.
#[test]
fn a_format_allows_the_answer_and_calls() {
    let server = TestServer::new();
    let schema = fixed_json!({ "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"] });
    let format = json!({ "type": "json_schema", "json_schema": { "schema": schema } });
    let function = json!({ "name": "set", "parameters": schema });
    let tokens = server
        .post("/tokenize", &fixed_json!({ "content": "<" }))
        .json();
    let open = tokens["tokens"]
        .as_array()
        .and_then(|tokens| tokens.last())
        .expect("a token")
        .to_string();
    for (bias, is_call) in [(-100, false), (100, true)] {
        let extra = json!({
            "tools": [{ "type": "function", "function": function }],
            "response_format": format, "max_tokens": 100, "parallel_tool_calls": false,
            "logit_bias": { open.clone(): bias },
        });
        let answer = server.post("/v1/chat/completions", &request(extra)).json();
        let message = &answer["choices"][0]["message"];
        let text = match is_call {
            true => &message["tool_calls"][0]["function"]["arguments"],
            false => &message["content"],
        };
        let value: Value = serde_json::from_str(text.as_str().unwrap_or_default())
            .unwrap_or_else(|e| panic!("{e}: {answer}"));
        assert!(value["a"].is_boolean(), "{answer}");
    }
}
