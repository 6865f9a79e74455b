//! Objects of an answer.

use super::request::{ReasoningFields, ResponsesFields};
use super::tools::{ClientCall, ToolKind};
use crate::engine::events::{FinishReason, Usage};
use crate::http::error::ApiError;
use crate::http::ids;
use serde_json::{Value, json};
use tabla::Sampling;

/// Names in items and events of a kind of text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TextKind {
    pub(crate) item: &'static str,
    pub(crate) id_prefix: &'static str,
    pub(crate) part: &'static str,
    pub(crate) delta: &'static str,
    pub(crate) done: &'static str,
}

/// Text for the user.
pub(crate) static MESSAGE: TextKind = TextKind {
    item: "message",
    id_prefix: "msg_",
    part: "output_text",
    delta: "response.output_text.delta",
    done: "response.output_text.done",
};

/// Reasoning.
pub(crate) static REASONING: TextKind = TextKind {
    item: "reasoning",
    id_prefix: "rs_",
    part: "reasoning_text",
    delta: "response.reasoning_text.delta",
    done: "response.reasoning_text.done",
};

/// Names in items and events of a kind of call.
pub(crate) struct CallKind {
    pub(crate) item: &'static str,
    pub(crate) id_prefix: &'static str,
    /// Field of the arguments.
    pub(crate) payload: &'static str,
    pub(crate) delta: &'static str,
    pub(crate) done: &'static str,
}

impl CallKind {
    pub(crate) fn of(kind: ToolKind) -> &'static Self {
        static FUNCTION: CallKind = CallKind {
            item: "function_call",
            id_prefix: "fc_",
            payload: "arguments",
            delta: "response.function_call_arguments.delta",
            done: "response.function_call_arguments.done",
        };
        static CUSTOM: CallKind = CallKind {
            item: "custom_tool_call",
            id_prefix: "ctc_",
            payload: "input",
            delta: "response.custom_tool_call_input.delta",
            done: "response.custom_tool_call_input.done",
        };
        match kind {
            ToolKind::Function => &FUNCTION,
            ToolKind::Custom => &CUSTOM,
        }
    }
}

/// End of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    Incomplete,
}

impl Ending {
    pub(crate) fn of(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Stop | FinishReason::ToolCalls => Self::Completed,
            FinishReason::Length | FinishReason::Context => Self::Incomplete,
        }
    }

    /// Status of the response and of the item that was open.
    pub(crate) fn status(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
        }
    }

    /// Name of the last event.
    pub(crate) fn event(self) -> &'static str {
        match self {
            Self::Completed => "response.completed",
            Self::Incomplete => "response.incomplete",
        }
    }
}

/// Returns the response object before the first token. It has all keys: clients require them.
pub(crate) fn response(
    fields: &ResponsesFields,
    sampling: &Sampling,
    model: &str,
    created: u64,
) -> Value {
    let text = fields.text.clone().unwrap_or_default();
    let ReasoningFields { effort, summary } = fields.reasoning.clone().unwrap_or_default();
    let tools = fields.tools.iter().flatten().map(tool);
    let mut response = json!({
        "id": ids::new_id("resp_"),
        "object": "response",
        "created_at": created,
        "completed_at": null,
        "status": "in_progress",
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": fields.instructions,
        "max_output_tokens": fields.max_output_tokens.map(|limit| limit.0),
        "max_tool_calls": fields.max_tool_calls.as_ref().and_then(Value::as_i64),
        "model": model,
        "output": [],
        "parallel_tool_calls": fields.parallel_tool_calls.unwrap_or(true),
        "previous_response_id": fields.previous_response_id,
        "presence_penalty": decimal(sampling.presence_penalty),
        "frequency_penalty": decimal(sampling.frequency_penalty),
        "reasoning": { "effort": effort, "summary": summary },
        "service_tier": "default",
        "store": fields.store.unwrap_or(true),
        "temperature": decimal(sampling.temperature),
        "text": { "format": format(text.format.as_ref()) },
        "tool_choice": fields.tool_choice.clone().unwrap_or_else(|| "auto".into()),
        "tools": tools.collect::<Vec<_>>(),
        "top_logprobs": fields.top_logprobs.map_or(0, |top| top.0),
        "top_p": decimal(sampling.top_p),
        "truncation": "disabled",
        "usage": null,
        "metadata": fields.metadata.clone().unwrap_or_default(),
    });
    if let Some(verbosity) = text.verbosity {
        response["text"]["verbosity"] = verbosity.into();
    }
    for (name, value) in [
        ("prompt_cache_key", &fields.prompt_cache_key),
        ("safety_identifier", &fields.safety_identifier),
        ("user", &fields.user),
    ] {
        response[name] = value.as_ref().and_then(Value::as_str).into();
    }
    response
}

/// Returns a tool of the request with the keys that clients require.
fn tool(tool: &Value) -> Value {
    let mut tool = tool.clone();
    if tool["type"] == "function" {
        add_missing(&mut tool, &["description", "parameters", "strict"]);
    }
    tool
}

fn format(format: Option<&Value>) -> Value {
    let Some(format) = format.filter(|format| format.is_object()) else {
        return json!({ "type": "text" });
    };
    let mut format = format.clone();
    if format["type"] == "json_schema" {
        add_missing(&mut format, &["name", "description", "schema"]);
        format["strict"] = format["strict"].as_bool().unwrap_or(false).into();
    }
    format
}

/// Adds keys with the value null.
fn add_missing(object: &mut Value, keys: &[&str]) {
    for key in keys {
        if object.get(key).is_none() {
            object[*key] = Value::Null;
        }
    }
}

/// Returns the number with the digits of `f32`: 0.8, not 0.800000011920929.
fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| value.into())
}

/// Returns the usage.
pub(crate) fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt.tokens,
        "input_tokens_details": {
            "cached_tokens": usage.prompt.cached,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.generated,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": usage.prompt.tokens + usage.generated,
    })
}

/// Returns a part of an item.
pub(crate) fn part(kind: &TextKind, text: &str, logprobs: &[Value]) -> Value {
    let mut part = json!({ "type": kind.part, "text": text });
    if *kind == MESSAGE {
        part["annotations"] = json!([]);
        part["logprobs"] = logprobs.into();
    }
    part
}

/// Returns a message or a reasoning item.
pub(crate) fn text_item(kind: &TextKind, id: &str, status: &str, content: Vec<Value>) -> Value {
    let mut item = json!({ "type": kind.item, "id": id });
    if *kind == MESSAGE {
        item["role"] = "assistant".into();
    } else {
        item["summary"] = json!([]);
    }
    item["status"] = status.into();
    item["content"] = content.into();
    item
}

/// Returns a tool call with this payload.
pub(crate) fn call_item(call: &ClientCall, id: &str, call_id: &str, payload: &str) -> Value {
    let kind = CallKind::of(call.kind);
    let mut item = json!({
        "type": kind.item,
        "id": id,
        "call_id": call_id,
        "name": call.name,
    });
    if let Some(namespace) = &call.namespace {
        item["namespace"] = namespace.clone().into();
    }
    item[kind.payload] = payload.into();
    item
}

/// Returns the code of an error in a response object: clients accept only these.
pub(crate) fn error_code(error: &ApiError) -> &'static str {
    match error.status.as_u16() {
        429 => "rate_limit_exceeded",
        400..=499 => "invalid_prompt",
        _ => "server_error",
    }
}
