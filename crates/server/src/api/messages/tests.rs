//! Tests of requests and of the writer's events.

use super::request::MessagesFields;
use super::stream::{ThinkingDisplay, Writer};
use crate::api::opaque;
use crate::api::testing::{self, ended, output, record};
use crate::engine::conversation::{Chat, ResponseFormat};
use crate::engine::events::{CalledTool, Delta, Event, FinishReason};
use crate::engine::tools::ToolChoice;
use crate::http::body::{Json, fields};
use crate::http::deadline::Deadline;
use crate::http::error::{ApiError, ApiResult, Dialect};
use crate::http::gate::RequestContext;
use crate::http::memory::BodyBudget;
use crate::http::sse::EventWriter;
use serde_json::{Value, json};
use std::time::Duration;

fn writer(display: ThinkingDisplay) -> Writer {
    let context = RequestContext {
        id: "req_a".to_string(),
        dialect: Dialect::Anthropic,
        record: record(),
        deadline: Deadline::new(Duration::from_secs(1)),
        memory: BodyBudget::new(0).body(),
    };
    Writer::new(context, display, "m", 10)
}

fn written(writer: &mut Writer, events: Vec<Event>) -> Vec<Value> {
    let mut out = String::new();
    writer.begin(&mut out);
    for event in events {
        writer.event(event, &mut out);
    }
    testing::events(&out)
}

fn chat(request: Value) -> ApiResult<Chat> {
    let parsed: MessagesFields = fields(&Json::from(&request))?;
    parsed.chat(16)
}

fn user(text: &str) -> Value {
    json!([{ "role": "user", "content": text }])
}

/// Returns a usage with these fields.
fn usage(fields: &Value) -> Value {
    let mut usage = json!({
        "input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        "output_tokens": 0, "output_tokens_details": null, "server_tool_use": null,
    });
    for (name, value) in fields.as_object().expect("an object") {
        usage[name] = value.clone();
    }
    usage
}

fn start(index: u32, block: &Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn delta(index: u32, delta: &Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn stop(index: u32) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

#[test]
fn a_stream_has_all_events_and_the_whole_answer_is_its_sum() {
    let mut writer = writer(ThinkingDisplay::Full);
    let call = CalledTool {
        index: 0,
        id: "call_x".to_string(),
        name: "f".to_string(),
        arguments: "{\"a\": 1}".to_string(),
    };
    let mut events = vec![
        output(Delta::Reasoning("h".to_string())),
        output(Delta::Reasoning("m".to_string())),
        output(Delta::Text("a".to_string())),
        output(Delta::ToolCall(call)),
    ];
    events.extend(ended(FinishReason::ToolCalls, None));
    let events = written(&mut writer, events);
    let signature = opaque::encode("");
    let nulls = json!({ "cache_creation": null, "inference_geo": null, "service_tier": null });
    let message = json!({
        "id": "msg_0", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null, "stop_details": null, "container": null,
        "usage": usage(&nulls),
    });
    let totals = json!({
        "input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 3,
        "output_tokens_details": { "thinking_tokens": 1 },
    });
    let tool = |input: Value| {
        json!({ "type": "tool_use", "id": "toolu_x", "name": "f", "input": input,
                "caller": { "type": "direct" } })
    };
    let expected = [
        json!({ "type": "message_start", "message": message }),
        start(
            0,
            &json!({ "type": "thinking", "thinking": "", "signature": "" }),
        ),
        delta(0, &json!({ "type": "thinking_delta", "thinking": "h" })),
        delta(0, &json!({ "type": "thinking_delta", "thinking": "m" })),
        delta(
            0,
            &json!({ "type": "signature_delta", "signature": signature }),
        ),
        stop(0),
        start(1, &json!({ "type": "text", "text": "", "citations": [] })),
        delta(1, &json!({ "type": "text_delta", "text": "a" })),
        stop(1),
        start(2, &tool(json!({}))),
        delta(
            2,
            &json!({ "type": "input_json_delta", "partial_json": "{\"a\": 1}" }),
        ),
        stop(2),
        json!({ "type": "message_delta", "delta": {
            "stop_reason": "tool_use", "stop_sequence": null, "stop_details": null, "container": null,
        }, "usage": usage(&totals) }),
        json!({ "type": "message_stop" }),
    ];
    assert_eq!(events, expected);
    assert_eq!(
        writer.message["content"],
        json!([
            { "type": "thinking", "thinking": "hm", "signature": signature },
            { "type": "text", "text": "a", "citations": [] },
            tool(json!({ "a": 1 })),
        ])
    );
    assert_eq!(writer.message["stop_reason"], "tool_use");
    assert_eq!(writer.message["usage"]["cache_read_input_tokens"], 4);
}

#[test]
fn each_end_has_a_reason() {
    for (reason, stop_string, expected) in [
        (FinishReason::Stop, None, "end_turn"),
        (FinishReason::Stop, Some("END"), "stop_sequence"),
        (FinishReason::Length, None, "max_tokens"),
        (FinishReason::Context, None, "model_context_window_exceeded"),
    ] {
        let mut writer = writer(ThinkingDisplay::Full);
        written(&mut writer, ended(reason, stop_string));
        assert_eq!(writer.message["stop_reason"], expected);
        assert_eq!(writer.message["stop_sequence"].as_str(), stop_string);
        // An empty answer has a block, too.
        assert_eq!(writer.message["content"][0]["text"], "");
    }
}

#[test]
fn omitted_thinking_is_in_the_signature() {
    let mut writer = writer(ThinkingDisplay::Omitted);
    let mut events = vec![
        output(Delta::Reasoning("hm".to_string())),
        output(Delta::Text("a".to_string())),
    ];
    events.extend(ended(FinishReason::Stop, None));
    let events = written(&mut writer, events);
    assert!(
        events
            .iter()
            .all(|event| event["delta"]["type"] != "thinking_delta")
    );
    let content = writer.message["content"].clone();
    assert_eq!(content[0]["thinking"], "");
    let chat = chat(json!({ "messages": [
        { "role": "user", "content": "q" },
        { "role": "assistant", "content": content },
        { "role": "user", "content": "r" },
    ] }));
    let messages = chat.expect("a valid request").messages;
    assert_eq!(messages[1]["reasoning_content"], "hm");
}

#[test]
fn errors_and_pings_have_names() {
    let mut writer = writer(ThinkingDisplay::Full);
    let mut out = String::new();
    writer.ping(&mut out);
    let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
    writer.error(&ApiError::new(status, "device lost"), &mut out);
    assert_eq!(
        testing::events(&out),
        [
            json!({ "type": "ping" }),
            json!({ "type": "error", "request_id": "req_a", "error": {
            "type": "overloaded_error", "message": "device lost",
        } }),
        ]
    );
}

#[test]
fn messages_of_claude_code_are_converted() {
    let chat = chat(json!({
        "system": [
            { "type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=a5145;" },
            { "type": "text", "text": "You are an agent.", "cache_control": { "type": "ephemeral" } },
            { "type": "text", "text": "x-anthropic-billing-header: cch=1;\nLong." },
        ],
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "r" }, { "type": "text", "text": "p" }] },
            { "role": "system", "content": "Agents" },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "hm", "signature": "s" },
                { "type": "redacted_thinking", "data": "x" },
                { "type": "text", "text": "t" },
                { "type": "tool_use", "id": "toolu_a", "name": "f", "input": { "a": 1 } },
                { "type": "tool_use", "id": "toolu_b", "name": "g", "input": {} },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "toolu_a", "content": [{ "type": "text", "text": "1" }] },
                { "type": "tool_result", "tool_use_id": "toolu_b", "is_error": true, "content": "no" },
                { "type": "text", "text": "go on" },
                { "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "d" } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "toolu_a", "content": [{ "type": "image", "source": {} }] },
            ] },
            { "role": "assistant", "content": [] },
        ],
        "tools": [
            { "name": "f", "input_schema": { "$schema": "s", "type": "object" }, "eager_input_streaming": true },
            { "type": "web_search_20250305", "name": "web_search" },
        ],
        "thinking": { "type": "adaptive" }, "output_config": { "effort": "high" },
        "context_management": { "edits": [] }, "metadata": { "user_id": "u" },
    }));
    let chat = chat.expect("a valid request");
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    assert_eq!(
        Value::from(chat.messages),
        json!([
            { "role": "system", "content": "You are an agent.\n\nLong." },
            { "role": "user", "content": "r\n\np" },
            { "role": "system", "content": "Agents" },
            { "role": "assistant", "content": "t", "reasoning_content": "hm", "tool_calls": [
                call("toolu_a", "f", "{\"a\":1}"), call("toolu_b", "g", "{}"),
            ] },
            { "role": "tool", "content": "1", "tool_call_id": "toolu_a", "name": "f" },
            { "role": "tool", "content": "Error: no", "tool_call_id": "toolu_b", "name": "g" },
            { "role": "user", "content": "go on\n\nd" },
            { "role": "tool", "content": "[image omitted: the model reads only text]", "tool_call_id": "toolu_a", "name": "f" },
        ])
    );
    assert_eq!(chat.tools.len(), 1);
    assert_eq!(chat.reasoning_effort.as_deref(), Some("high"));
}

#[test]
fn choices_and_formats_are_converted() {
    let tools = json!([{ "name": "f", "input_schema": {} }]);
    for (choice, expected, is_parallel) in [
        (json!(null), ToolChoice::Auto, true),
        (json!({ "type": "none" }), ToolChoice::None, true),
        (
            json!({ "type": "any", "disable_parallel_tool_use": true }),
            ToolChoice::Required,
            false,
        ),
        (
            json!({ "type": "tool", "name": "f" }),
            ToolChoice::Named("f".to_string()),
            true,
        ),
    ] {
        let request = json!({ "messages": user("a"), "tools": tools, "tool_choice": choice });
        let chat = chat(request).expect("a valid request");
        assert_eq!(chat.tool_choice, expected);
        assert_eq!(chat.parallel_calls, is_parallel);
        assert_eq!(chat.reasoning_effort.as_deref(), Some("none"));
    }
    let format = json!({ "type": "json_schema", "schema": { "type": "object" } });
    for request in [
        json!({ "messages": user("a"), "output_config": { "format": format } }),
        json!({ "messages": user("a"), "output_format": format }),
    ] {
        let chat = chat(request).expect("a valid request");
        assert!(matches!(chat.response, ResponseFormat::RelaxedSchema(..)));
    }
}

#[test]
fn invalid_requests_name_the_field() {
    let with = |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
    for (request, param) in [
        (json!({}), "messages"),
        (json!({ "messages": [1] }), "messages[0]"),
        (
            json!({ "messages": [{ "role": "x", "content": "" }] }),
            "messages[0].role",
        ),
        (with(Value::Null), "messages[0].content"),
        (
            with(json!([{ "type": "image" }])),
            "messages[0].content[0].type",
        ),
        (
            with(json!([{ "type": "text" }])),
            "messages[0].content[0].text",
        ),
        (
            with(json!([{ "type": "tool_result" }])),
            "messages[0].content[0].tool_use_id",
        ),
        (
            with(json!([{ "type": "document", "source": { "type": "text" } }])),
            "messages[0].content[0].source.data",
        ),
        (json!({ "messages": user("a"), "system": 1 }), "system"),
        (
            json!({ "messages": user("a"), "tools": [{}] }),
            "tools[0].name",
        ),
        (
            json!({ "messages": user("a"), "tools": [{ "name": "f", "input_schema": 1 }] }),
            "tools[0].input_schema",
        ),
        (
            json!({ "messages": user("a"), "tool_choice": { "type": "x" } }),
            "tool_choice.type",
        ),
        (
            json!({ "messages": user("a"), "tool_choice": { "type": "any" } }),
            "tool_choice",
        ),
    ] {
        let error = chat(request.clone()).expect_err("an invalid request");
        assert_eq!(error.param.as_deref(), Some(param), "{request}");
    }
}
