//! Tests of requests, of the writer's events, and of the store.

use super::answer;
use super::items::{items, messages};
use super::request::{ParsedRequest, ResponsesFields};
use super::stream::{Storage, Writer};
use super::tools::{ToolKind, ToolTable};
use crate::api::testing::{self, ended, output, record};
use crate::engine::events::{CalledTool, Delta, Event, FinishReason};
use crate::engine::tools::ToolChoice;
use crate::http::body::Json;
use crate::http::error::ApiError;
use crate::http::memory::{BodyBudget, JSON_BYTES_MAX};
use crate::http::sse::EventWriter;
use crate::response_store::{ResponseStore, StoredResponse};
use serde_json::{Value, json};
use std::sync::Arc;
use tabla::Sampling;
use tabla_testkit::fixed_json;

/// Returns the writer of a request.
fn writer(request: &Value) -> Writer {
    let parsed = parse(request).expect("a valid request");
    let sampling = Sampling::default().temperature(0.8);
    let response = answer::response(&parsed.fields, &sampling, "m", 7);
    Writer::new(response, parsed.tools, record())
}

fn parse(request: &Value) -> Result<ParsedRequest, ApiError> {
    let memory = BodyBudget::new(usize::MAX).body();
    ResponsesFields::parse(&request.into(), &unlimited(8), &memory, 16)
}

/// Writes events and returns them as JSON, with identifiers replaced by numbers.
fn written(writer: &mut Writer, events: Vec<Event>) -> Vec<Value> {
    let mut out = String::new();
    writer.begin(&mut out);
    for event in events {
        writer.event(event, &mut out);
    }
    testing::events(&out)
}

fn called(index: u32, name: &str, arguments: &str) -> Event {
    output(Delta::ToolCall(CalledTool {
        index,
        id: format!("call_{index}"),
        name: name.to_string(),
        arguments: arguments.to_string(),
    }))
}

/// Returns the names of events; increments with their text.
fn names(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| {
        let name = event["type"].as_str().unwrap_or_default();
        let name = name.strip_prefix("response.").unwrap_or(name);
        match event["delta"].as_str() {
            Some(delta) => format!("{name} {delta}"),
            None => name.to_string(),
        }
    };
    events.iter().map(name).collect()
}

/// Events of an answer with reasoning, text and two calls.
const CALLS_EVENTS: [&str; 24] = [
    "created",
    "in_progress",
    "output_item.added",
    "content_part.added",
    "reasoning_text.delta hm",
    "reasoning_text.done",
    "content_part.done",
    "output_item.done",
    "output_item.added",
    "content_part.added",
    "output_text.delta a",
    "output_text.delta b",
    "output_text.done",
    "content_part.done",
    "output_item.done",
    "output_item.added",
    "function_call_arguments.delta {\"n\":1}",
    "function_call_arguments.done",
    "output_item.done",
    "output_item.added",
    "custom_tool_call_input.delta *** x\n",
    "custom_tool_call_input.done",
    "output_item.done",
    "completed",
];

#[test]
fn a_stream_has_all_events_and_the_last_one_has_the_whole_answer() {
    let request = fixed_json!({ "input": "hi", "tools": [
        { "type": "namespace", "name": "mcp__x", "description": "", "tools": [
            { "type": "function", "name": "t", "parameters": { "type": "object" } },
        ] },
        { "type": "custom", "name": "patch", "format": { "type": "text" } },
        { "type": "web_search", "external_web_access": false },
    ] });
    let mut writer = writer(&request);
    let mut events = vec![
        output(Delta::Reasoning("hm".to_string())),
        output(Delta::Text("a".to_string())),
        output(Delta::Text("b".to_string())),
        called(0, "mcp__x__t", "{\"n\":1}"),
        called(1, "patch", "{\"input\":\"*** x\\n\"}"),
    ];
    events.extend(ended(FinishReason::ToolCalls, None));
    let events = written(&mut writer, events);
    assert_eq!(names(&events), CALLS_EVENTS);
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], at);
    }
    let output = fixed_json!([
        { "type": "reasoning", "id": "rs_1", "summary": [], "status": "completed",
          "content": [{ "type": "reasoning_text", "text": "hm" }] },
        { "type": "message", "id": "msg_2", "role": "assistant", "status": "completed",
          "content": [{ "type": "output_text", "text": "ab", "annotations": [], "logprobs": [] }] },
        { "type": "function_call", "id": "fc_3", "call_id": "call_0", "name": "t",
          "namespace": "mcp__x", "arguments": "{\"n\":1}", "status": "completed" },
        { "type": "custom_tool_call", "id": "ctc_4", "call_id": "call_1", "name": "patch",
          "input": "*** x\n" },
    ]);
    let last = &events[23]["response"];
    assert_eq!(last["output"], output);
    assert_eq!(last["status"], "completed");
    let items = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done");
    let items: Vec<Value> = items.map(|event| event["item"].clone()).collect();
    assert_eq!(Value::from(items), output);
    assert_eq!(
        events[10],
        fixed_json!({
            "type": "response.output_text.delta", "sequence_number": 10, "item_id": "msg_2",
            "output_index": 1, "content_index": 0, "delta": "a", "logprobs": [],
        })
    );
    assert_eq!(
        events[17],
        fixed_json!({
            "type": "response.function_call_arguments.done", "sequence_number": 17, "item_id": "fc_3",
            "output_index": 2, "arguments": "{\"n\":1}", "name": "t",
        })
    );
}

#[test]
fn the_response_has_all_required_keys() {
    let request = fixed_json!({
        "input": [], "metadata": { "a": "b" }, "temperature": 0.8, "tool_choice": null, "tools": [
            { "type": "function", "name": "f" },
        ],
        "text": { "format": { "type": "json_schema", "name": "n", "schema": {} } },
        "reasoning": { "summary": "auto" }, "max_output_tokens": 5.0, "prompt_cache_key": "k",
    });
    let mut writer = writer(&request);
    let events = written(&mut writer, ended(FinishReason::Length, None));
    let whole = json!({
        "id": "resp_0", "object": "response", "created_at": 7, "completed_at": null,
        "status": "incomplete", "background": false, "error": null,
        "incomplete_details": { "reason": "max_output_tokens" }, "instructions": null,
        "max_output_tokens": 5, "max_tool_calls": null, "model": "m",
        "output": [{
            "type": "message", "id": "msg_1", "role": "assistant", "status": "incomplete",
            "content": [{ "type": "output_text", "text": "", "annotations": [], "logprobs": [] }],
        }],
        "parallel_tool_calls": true, "previous_response_id": null, "presence_penalty": 0.0,
        "frequency_penalty": 0.0, "reasoning": { "effort": null, "summary": "auto" },
        "service_tier": "default", "store": true, "temperature": 0.8,
        "text": { "format": { "type": "json_schema", "name": "n", "schema": {},
                              "description": null, "strict": false } },
        "tool_choice": "auto",
        "tools": [{ "type": "function", "name": "f", "description": null, "parameters": null,
                    "strict": null }],
        "top_logprobs": 0, "top_p": Sampling::default().top_p.to_string().parse::<f64>().expect("a number"),
        "truncation": "disabled",
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": { "cached_tokens": 4, "cache_write_tokens": 0 },
            "output_tokens": 3, "output_tokens_details": { "reasoning_tokens": 1 },
            "total_tokens": 13,
        },
        "metadata": { "a": "b" }, "prompt_cache_key": "k", "safety_identifier": null, "user": null,
    });
    let last = events.last().expect("an event");
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"], whole);
    // The first events have the whole object, too.
    let mut first = whole.clone();
    for (name, value) in [
        ("status", json!("in_progress")),
        ("incomplete_details", Value::Null),
        ("output", json!([])),
        ("usage", Value::Null),
    ] {
        first[name] = value;
    }
    assert_eq!(events[0]["response"], first);
    assert_eq!(events[1]["response"], first);
}

#[test]
fn an_error_ends_the_stream_with_a_failed_response() {
    let mut writer = writer(&fixed_json!({ "input": "hi" }));
    let mut out = String::new();
    writer.begin(&mut out);
    writer.event(output(Delta::Text("a".to_string())), &mut out);
    let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
    writer.error(&ApiError::new(status, "device lost"), &mut out);
    let events = testing::events(&out);
    let error = &events[events.len() - 2];
    assert_eq!(
        error,
        &fixed_json!({
            "type": "error", "sequence_number": 8, "code": "server_error", "message": "device lost",
            "param": null,
        })
    );
    let last = &events[events.len() - 1];
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["status"], "failed");
    assert_eq!(last["response"]["error"]["message"], "device lost");
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");
}

#[test]
fn items_become_messages() {
    let list = json!([
        { "type": "message", "id": "msg_a", "role": "developer", "content": [{ "type": "input_text", "text": "d" }] },
        { "role": "user", "content": "u" },
        { "type": "reasoning", "id": "rs_a", "summary": [], "encrypted_content": null },
        { "type": "reasoning", "id": "rs_b", "summary": [], "content": [{ "type": "reasoning_text", "text": "hm" }] },
        { "type": "message", "role": "assistant", "phase": "commentary", "content": [{ "type": "output_text", "text": "c", "annotations": [] }] },
        { "type": "function_call", "status": "completed", "id": "fc_a", "name": "t", "namespace": "mcp__x", "arguments": "{}", "call_id": "call_a" },
        { "type": "custom_tool_call", "name": "patch", "input": "p", "call_id": "call_b" },
        { "type": "function_call_output", "id": "fco_a", "call_id": "call_a", "output": "o" },
        { "type": "custom_tool_call_output", "call_id": "call_b", "output": [{ "type": "input_text", "text": "q" }] },
        { "type": "web_search_call", "id": "ws_a", "status": "completed" },
        { "type": "reasoning", "summary": [], "encrypted_content": crate::api::opaque::encode("kept") },
        { "type": "message", "role": "assistant", "content": "e" },
        { "type": "message", "role": "assistant", "content": "f" },
    ]);
    let tools = ToolTable::default();
    let list = items(Some(list), &unlimited(1)).expect("valid items");
    let list: Vec<&Value> = list.iter().collect();
    let (messages, text_arguments) = messages(Some("i"), &list, 0, &tools).expect("valid items");
    assert_eq!(text_arguments, None);
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    assert_eq!(
        Value::from(messages),
        json!([
            { "role": "system", "content": "i" },
            { "role": "system", "content": "d" },
            { "role": "user", "content": "u" },
            { "role": "assistant", "content": "c", "reasoning_content": "hm", "tool_calls": [
                call("call_a", "mcp__x__t", "{}"), call("call_b", "patch", "{\"input\":\"p\"}"),
            ] },
            { "role": "tool", "content": "o", "tool_call_id": "call_a", "name": "mcp__x__t" },
            { "role": "tool", "content": "q", "tool_call_id": "call_b", "name": "patch" },
            { "role": "assistant", "content": "e\n\nf", "reasoning_content": "kept" },
        ])
    );
}

#[test]
fn an_empty_input_is_accepted_and_a_missing_one_is_not() {
    for request in [
        json!({}),
        fixed_json!({ "input": null, "prompt": null, "instructions": "a" }),
    ] {
        let error = parse(&request).err().expect("an invalid request");
        assert_eq!(error.param.as_deref(), Some("input"), "{request}");
    }
    for input in [json!(""), json!([])] {
        let parsed = parse(&json!({ "input": input, "tools": null, "include": null }));
        let chat = parsed.expect("a valid request").chat;
        assert_eq!(
            chat.messages,
            [fixed_json!({ "role": "user", "content": "" })]
        );
    }
}

#[test]
fn invalid_requests_name_the_field() {
    let user = |part: Value| json!([{ "role": "user", "content": [part] }]);
    for (request, param) in [
        (fixed_json!({ "input": 1 }), "input"),
        (fixed_json!({ "input": [1] }), "input[0]"),
        (fixed_json!({ "input": [{ "role": "x" }] }), "input[0].role"),
        (
            json!({ "input": user(fixed_json!({ "type": "input_image" })) }),
            "input[0].content[0].type",
        ),
        (
            fixed_json!({ "input": [{ "type": "function_call", "call_id": "a" }] }),
            "input[0].arguments",
        ),
        (
            fixed_json!({ "input": [{ "type": "item_reference", "id": "a" }] }),
            "input[0].id",
        ),
        (
            fixed_json!({ "previous_response_id": "resp_a" }),
            "previous_response_id",
        ),
        (fixed_json!({ "background": true }), "background"),
        (
            fixed_json!({ "tools": [{ "type": "function" }] }),
            "tools[0].name",
        ),
        (
            fixed_json!({ "tool_choice": { "type": "function", "name": "f" } }),
            "tool_choice",
        ),
        (fixed_json!({ "tool_choice": "x" }), "tool_choice"),
        (
            fixed_json!({ "text": { "format": { "type": "x" } } }),
            "text.format",
        ),
        (
            fixed_json!({ "reasoning": { "effort": 1 } }),
            "reasoning.effort",
        ),
        (fixed_json!({ "stream": "yes" }), "stream"),
    ] {
        let mut request = request;
        if request["input"].is_null() {
            request["input"] = "a".into();
        }
        let error = parse(&request).err().expect("an invalid request");
        assert_eq!(error.param.as_deref(), Some(param), "{request}");
    }
}

#[test]
fn tools_are_translated() {
    let grammar =
        fixed_json!({ "type": "grammar", "syntax": "lark", "definition": "start: \"a\"" });
    let regex = fixed_json!({ "type": "grammar", "syntax": "regex", "definition": "a|b" });
    let list = json!([
        { "type": "namespace", "name": "a", "tools": [{ "type": "function", "name": "b__c" }] },
        { "type": "namespace", "name": "a__b", "tools": [{ "type": "function", "name": "c" }] },
        { "type": "custom", "name": "lark", "description": "d", "format": grammar },
        { "type": "custom", "name": "regex", "format": regex },
    ]);
    let mut table = ToolTable::new(list.as_array().expect("a list")).expect("valid tools");
    let flat: Vec<&str> = table.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(flat, ["a__b__c", "a__b__c_2", "lark", "regex"]);
    assert_eq!(table.flat_name(Some("a__b"), "c"), "a__b__c_2");
    let call = table.client_call("a__b__c_2", "{}");
    assert_eq!(
        (call.name.as_str(), call.namespace.as_deref()),
        ("c", Some("a__b"))
    );
    let call = table.client_call("lark", "not JSON");
    assert_eq!(
        (call.kind, call.payload.as_str()),
        (ToolKind::Custom, "not JSON")
    );
    let call = table.client_call("unknown", "{}");
    assert_eq!(
        (call.kind, call.name.as_str()),
        (ToolKind::Function, "unknown")
    );
    let description = table.tools[2].description.as_deref();
    assert_eq!(
        description,
        Some("d\n\nThe input matches this lark grammar:\nstart: \"a\"")
    );
    assert_eq!(
        table.tools[3].parameters["properties"]["input"]["pattern"],
        "^(?:a|b)$"
    );
    let named = |name: &str| json!({ "type": "custom", "name": name });
    let choice = table.choose(Some(&named("regex"))).expect("a valid choice");
    assert_eq!(choice, ToolChoice::Named("regex".to_string()));
    table
        .choose(Some(&named("lark")))
        .expect_err("a Lark grammar cannot be forced");
    let allowed = fixed_json!({ "type": "allowed_tools", "mode": "required", "tools": [
        { "type": "namespace", "name": "a" }, { "type": "custom", "name": "lark" },
    ] });
    let choice = table.choose(Some(&allowed)).expect("a valid choice");
    assert_eq!(choice, ToolChoice::Required);
    let flat: Vec<&str> = table.tools.iter().map(|tool| tool.name.as_str()).collect();
    // The call of a tool with a Lark grammar cannot be forced.
    assert_eq!(flat, ["a__b__c"]);
}

#[test]
fn a_stored_response_is_continued() {
    let store = Arc::new(unlimited(2));
    let mut writer = writer(&fixed_json!({ "input": "hi" }));
    let memory = BodyBudget::new(1 << 20).body();
    writer.storage = Some(Storage {
        store: Arc::clone(&store),
        items: items(Some(json!("hi")), &store).expect("valid items"),
        _memory: Arc::clone(&memory),
    });
    let mut events = vec![output(Delta::Text("yo".to_string()))];
    events.extend(ended(FinishReason::Stop, None));
    written(&mut writer, events);
    let id = writer.response["id"].as_str().expect("an id").to_string();
    let stored = store.response(&id).expect("a stored response");
    assert_eq!(*stored, writer.response);
    let request = json!({ "input": "more", "instructions": "i", "previous_response_id": id });
    let request = Json::from(&request);
    let parsed = ResponsesFields::parse(&request, &store, &memory, 1).expect("a valid request");
    assert_eq!(
        Value::from(parsed.chat.messages),
        fixed_json!([
            { "role": "system", "content": "i" },
            { "role": "user", "content": "hi" },
            { "role": "assistant", "content": "yo" },
            { "role": "user", "content": "more" },
        ])
    );
    let item = writer.response["output"][0]["id"].as_str().expect("an id");
    let reference = json!([{ "type": "item_reference", "id": item }]);
    let resolved = items(Some(reference.clone()), &store).expect("a stored item");
    assert_eq!(resolved[0]["content"][0]["text"], "yo");
    assert!(store.remove(&id));
    assert!(!store.remove(&id));
    items(Some(reference), &store).expect_err("the item was removed");
}

/// A store without a limit of memory.
fn unlimited(entries: usize) -> ResponseStore {
    ResponseStore::new(entries, &BodyBudget::new(usize::MAX))
}

#[test]
fn bodies_get_the_memory_of_stored_responses() {
    let budget = BodyBudget::new(4 << 20);
    let store = Arc::new(ResponseStore::new(8, &budget));
    let own = Arc::downgrade(&store);
    budget.set_reclaim(move |bytes| own.upgrade().is_some_and(|store| store.reclaim(bytes)));
    let insert = |id: &str, bytes: usize| {
        store.insert(StoredResponse {
            response: json!({ "id": id }),
            items: vec![json!("a".repeat(bytes))],
            previous: None,
        });
    };
    insert("a", 900_000);
    insert("b", 900_000);
    let body = budget.body();
    body.grow(1 << 20).expect("both fit next to it");
    assert!(store.response("a").is_some());
    // More than all responses have: none is removed.
    body.grow(4 << 20).expect_err("more than the budget");
    assert!(store.response("b").is_some() && store.response("a").is_some());
    // "b" is the oldest now.
    body.grow(1 << 20).expect("instead of a response");
    assert!(store.response("b").is_none() && store.response("a").is_some());
    body.grow(1 << 20).expect("instead of the other");
    assert!(store.response("a").is_none());
    body.grow(1 << 20).expect_err("more than three quarters");
    // Without memory, a response is not stored.
    insert("c", 1 << 20);
    assert!(store.response("c").is_none());
    drop(body);
    insert("c", 1 << 20);
    assert!(store.response("c").is_some());
}

#[test]
fn the_store_is_bounded() {
    let store = unlimited(2);
    let insert = |id: &str, previous: Option<&str>| {
        store.insert(StoredResponse {
            response: json!({ "id": id }),
            items: vec![json!({ "id": format!("item_{id}") })],
            previous: previous.map(str::to_string),
        });
    };
    insert("a", None);
    insert("b", Some("a"));
    // A conversation keeps its older parts when their responses are removed.
    let items = || {
        let (parts, _) = store.conversation("b").expect("a stored conversation");
        parts
            .iter()
            .flat_map(|part| part.to_vec())
            .collect::<Vec<_>>()
    };
    let expected = [
        fixed_json!({ "id": "item_a" }),
        fixed_json!({ "id": "item_b" }),
    ];
    assert_eq!(items(), expected);
    insert("c", None);
    assert!(store.response("a").is_none());
    assert!(store.response("b").is_some());
    assert!(store.item("item_a").is_none());
    assert!(store.item("item_c").is_some());
    assert_eq!(items(), expected);
    let empty = unlimited(0);
    empty.insert(StoredResponse {
        response: fixed_json!({ "id": "a" }),
        items: Vec::new(),
        previous: None,
    });
    assert!(empty.response("a").is_none());
    // A request could not continue it.
    store.insert(StoredResponse {
        response: fixed_json!({ "id": "d" }),
        items: vec![json!("a".repeat(JSON_BYTES_MAX))],
        previous: None,
    });
    assert!(store.response("d").is_none());
}
