//! Answers of models that reason: a format and calls after a stop token within the reasoning, budgets, and stop
//! strings.

use crate::client::{TestServer, config};
use serde_json::{Value, json};
use tabla_testkit::fixed_json;

/// Template of a model that always reasons, with the tool calls of Qwen 3.
const THINKS: &str = "{%- if tools %}{{ tools | tojson }} <tool_call></tool_call>\n{% endif -%}\
    {%- for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor -%}assistant: <think>\n{# </think> #}";

fn server(template: &str, reasoning_budget: Option<u32>) -> TestServer {
    let mut config = config();
    config.models[0].chat_template = Some(template.to_string());
    config.limits.reasoning_budget = reasoning_budget;
    TestServer::with(config)
}

/// Returns a request with more fields.
fn with(mut request: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        request[name] = value.clone();
    }
    request
}

fn request() -> Value {
    fixed_json!({ "messages": [{ "role": "user", "content": "Tell a story" }], "seed": 1, "max_tokens": 60 })
}

/// Returns fields that make the model write three tokens and then its stop token.
fn stops_early() -> Value {
    let tokenizer = tabla::tools::load_tokenizer(&tabla::Source::BuiltIn).expect("a tokenizer");
    let stop = tokenizer.stops()[0].to_string();
    json!({ "max_tokens": 120, "min_tokens": 3, "logit_bias": { stop: 100 } })
}

fn boolean() -> Value {
    fixed_json!({ "type": "boolean" })
}

fn format() -> Value {
    json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": boolean() } })
}

fn parameters() -> Value {
    json!({ "type": "object", "properties": { "n": boolean() }, "required": ["n"] })
}

fn is_boolean(text: &Value) -> bool {
    text == "true" || text == "false"
}

/// Returns whether arguments match the parameters.
fn are_arguments(text: &Value) -> bool {
    let arguments: Value =
        serde_json::from_str(text.as_str().unwrap_or_default()).unwrap_or_default();
    arguments["n"].is_boolean()
}

#[test]
fn a_stop_token_closes_the_reasoning_of_a_chat() {
    let server = server(THINKS, None);
    let post = |extra: Value| {
        let request = with(with(request(), &stops_early()), &extra);
        server.post("/v1/chat/completions", &request).json()["choices"][0].clone()
    };
    let choice = post(json!({ "response_format": format() }));
    assert!(is_boolean(&choice["message"]["content"]), "{choice}");
    assert_eq!(choice["finish_reason"], "stop");
    let reasoning = choice["message"]["reasoning_content"].as_str();
    let reasoning = reasoning.expect("reasoning");
    assert!(
        !reasoning.is_empty() && !reasoning.contains('<'),
        "{reasoning:?}"
    );
    let function = json!({ "name": "set", "parameters": parameters() });
    let tools = json!([{ "type": "function", "function": function }]);
    let forced = json!({ "tools": tools, "tool_choice": "required", "parallel_tool_calls": false });
    let choice = post(forced.clone());
    assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
    let calls = choice["message"]["tool_calls"].as_array().expect("calls");
    assert_eq!(calls.len(), 1);
    assert!(
        are_arguments(&calls[0]["function"]["arguments"]),
        "{choice}"
    );
    // Stop tokens of the request do not end a call, either.
    let quote = server
        .post("/tokenize", &fixed_json!({ "content": "\"" }))
        .json();
    let stop = json!({ "stop_token_ids": quote["tokens"] });
    assert_eq!(post(with(forced, &stop))["finish_reason"], "tool_calls");
    // The limit within the reasoning.
    let choice = post(json!({ "response_format": format(), "max_tokens": 2 }));
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["content"], "");
    // Without a format, the answer ends.
    let choice = post(json!({}));
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["message"]["content"], "");
}

#[test]
fn a_stop_token_closes_the_reasoning_of_a_response() {
    let server = server(THINKS, None);
    let post = |extra: Value| {
        let base = fixed_json!({ "input": "Tell a story", "seed": 1, "max_output_tokens": 120 });
        let request = with(with(base, &stops_early()), &extra);
        server.post("/v1/responses", &request).json()
    };
    let format = json!({ "type": "json_schema", "name": "a", "schema": boolean() });
    let answer = post(json!({ "text": { "format": format } }));
    assert_eq!(answer["status"], "completed", "{answer}");
    let text = &answer["output"][1]["content"][0]["text"];
    assert!(is_boolean(text), "{answer}");
    let tool = json!({ "type": "function", "name": "set", "parameters": parameters() });
    let forced = fixed_json!({ "tool_choice": "required", "parallel_tool_calls": false });
    let answer = post(with(forced, &json!({ "tools": [tool] })));
    assert_eq!(answer["status"], "completed", "{answer}");
    assert!(are_arguments(&answer["output"][1]["arguments"]), "{answer}");
}

#[test]
fn a_stop_token_closes_the_reasoning_of_a_message() {
    let server = server(THINKS, None);
    let post = |extra: Value| {
        let thinking = fixed_json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } });
        let request = with(with(request(), &stops_early()), &thinking);
        server.post("/v1/messages", &with(request, &extra)).json()
    };
    let format = json!({ "type": "json_schema", "schema": boolean() });
    let answer = post(json!({ "output_config": { "format": format } }));
    assert_eq!(answer["stop_reason"], "end_turn", "{answer}");
    assert!(is_boolean(&answer["content"][1]["text"]), "{answer}");
    let tool = json!({ "name": "set", "input_schema": parameters() });
    let any = fixed_json!({ "type": "any", "disable_parallel_tool_use": true });
    let answer = post(json!({ "tools": [tool], "tool_choice": any }));
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    assert!(answer["content"][1]["input"]["n"].is_boolean(), "{answer}");
}

/// In Harmony, an answer in a format follows a header, which the server writes if the model ends before it.
#[test]
fn a_stop_token_before_a_header_does_not_end_an_answer() {
    let server = server("gpt-oss", None);
    let extra = json!({ "response_format": format(), "min_tokens": 0 });
    let request = with(with(request(), &stops_early()), &extra);
    let answer = server.post("/v1/chat/completions", &request).json();
    let choice = &answer["choices"][0];
    assert!(is_boolean(&choice["message"]["content"]), "{choice}");
    assert_eq!(choice["finish_reason"], "stop");
}

/// The server and requests limit the reasoning; stop strings do not end it.
#[test]
fn budgets_and_stop_strings_of_reasoning() {
    let server = server(THINKS, Some(4));
    let post = |extra: Value| {
        let answer = server.post("/v1/chat/completions", &with(request(), &extra));
        answer.json()["choices"][0]["message"].clone()
    };
    let reasoning = |message: &Value| {
        let text = message["reasoning_content"].as_str().unwrap_or_default();
        text.trim().to_string()
    };
    let long = reasoning(&post(fixed_json!({ "thinking_token_budget": -1 })));
    let mut last = 0;
    for budget in [
        fixed_json!({ "thinking_token_budget": 1 }),
        json!({}),
        fixed_json!({ "thinking_budget_tokens": 9 }),
    ] {
        let message = post(with(json!({ "response_format": format() }), &budget));
        let short = reasoning(&message);
        assert!(long.starts_with(&short), "{short:?}, {long:?}");
        assert!(short.len() > last, "{short:?}");
        last = short.len();
        assert!(is_boolean(&message["content"]), "{message}");
    }
    let none = post(json!({ "response_format": format(), "thinking_token_budget": 0 }));
    assert_eq!(reasoning(&none), "");
    assert!(is_boolean(&none["content"]), "{none}");
    let thinking = fixed_json!({ "thinking": { "type": "enabled", "budget_tokens": 1 } });
    let answer = server.post("/v1/messages", &with(request(), &thinking));
    let blocks = answer.json()["content"].clone();
    let thought = blocks[0]["thinking"].as_str().expect("a block");
    assert!(long.starts_with(thought.trim()) && thought.len() < last);
    assert!(!blocks[1]["text"].as_str().expect("a block").is_empty());
    let invalid = with(request(), &fixed_json!({ "thinking_token_budget": -2 }));
    let error = server.post("/v1/chat/completions", &invalid);
    assert_eq!(error.status, 400);
    assert_eq!(error.json()["error"]["param"], "thinking_token_budget");
    // The word is in the reasoning.
    let word = long.split(' ').find(|word| word.len() > 2).expect("a word");
    let message = post(json!({ "stop": [word], "thinking_token_budget": 20 }));
    assert!(reasoning(&message).contains(word), "{message}");
    assert_ne!(message["content"], "", "{message}");
}
