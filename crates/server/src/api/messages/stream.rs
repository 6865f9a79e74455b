//! Writer of the events of a message, which also builds the whole answer.

use crate::api::opaque;
use crate::engine::events::{CalledTool, Delta, Event, FinishReason, Finished, PromptUsage, Usage};
use crate::http::error::{ApiError, Dialect};
use crate::http::gate::RequestContext;
use crate::http::ids;
use crate::http::sse::{self, EventWriter};
use serde_json::{Map, Value, json};

/// Names of a kind of block of text.
#[derive(Debug, PartialEq, Eq)]
struct TextKind {
    block: &'static str,
    delta: &'static str,
}

static TEXT: TextKind = TextKind {
    block: "text",
    delta: "text_delta",
};

static THINKING: TextKind = TextKind {
    block: "thinking",
    delta: "thinking_delta",
};

/// Part of the reasoning that an answer contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThinkingDisplay {
    /// The text.
    Full,
    /// The signature only.
    Omitted,
}

/// Writer of the events of a message.
pub(crate) struct Writer {
    /// The message object.
    pub(super) message: Value,
    context: RequestContext,
    display: ThinkingDisplay,
    /// Finished blocks.
    content: Vec<Value>,
    open: Option<OpenBlock>,
    /// The tool call that is being written.
    call: Option<CalledTool>,
    finished: Option<Finished>,
}

struct OpenBlock {
    kind: &'static TextKind,
    text: String,
}

impl Writer {
    /// Creates the writer of an answer of this model to a prompt of this number of tokens.
    pub(super) fn new(
        context: RequestContext,
        display: ThinkingDisplay,
        model: &str,
        prompt_tokens: u64,
    ) -> Self {
        let prompt = PromptUsage {
            tokens: prompt_tokens,
            cached: 0,
        };
        let usage = Usage {
            prompt,
            ..Usage::default()
        };
        let message = json!({
            "id": ids::new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "stop_details": null,
            "container": null,
            "usage": whole_usage(&usage),
        });
        Self {
            message,
            context,
            display,
            content: Vec::new(),
            open: None,
            call: None,
            finished: None,
        }
    }

    /// Emits an event of the block that is being written.
    fn emit(&self, name: &str, fields: Value, out: &mut String) {
        let mut event = Map::new();
        event.insert("type".to_string(), name.into());
        event.insert("index".to_string(), self.content.len().into());
        if let Value::Object(fields) = fields {
            event.extend(fields);
        }
        sse::named(out, name, &event.into());
    }

    fn delta(&self, kind: &str, name: &str, text: &str, out: &mut String) {
        let fields = json!({ "delta": { "type": kind, name: text } });
        self.emit("content_block_delta", fields, out);
    }

    fn start(&self, block: &Value, out: &mut String) {
        self.emit(
            "content_block_start",
            json!({ "content_block": block }),
            out,
        );
    }

    fn stop(&mut self, block: Value, out: &mut String) {
        self.emit("content_block_stop", json!({}), out);
        self.content.push(block);
    }

    /// Returns the open block of this kind; closes a block of another kind.
    fn open(&mut self, kind: &'static TextKind, out: &mut String) -> OpenBlock {
        match self.open.take() {
            Some(open) if open.kind == kind => return open,
            Some(open) => self.close_block(open, out),
            None => {}
        }
        self.start(&text_block(kind, "", ""), out);
        OpenBlock {
            kind,
            text: String::new(),
        }
    }

    fn text(&mut self, kind: &'static TextKind, text: &str, out: &mut String) {
        if text.is_empty() {
            return;
        }
        let mut open = self.open(kind, out);
        open.text.push_str(text);
        if self.shows(kind) {
            self.delta(kind.delta, kind.block, text, out);
        }
        self.open = Some(open);
    }

    fn shows(&self, kind: &TextKind) -> bool {
        *kind == TEXT || self.display == ThinkingDisplay::Full
    }

    fn close(&mut self, out: &mut String) {
        if let Some(open) = self.open.take() {
            self.close_block(open, out);
        }
        self.end_call(out);
    }

    fn close_block(&mut self, open: OpenBlock, out: &mut String) {
        let OpenBlock { kind, text } = open;
        let (shown, hidden) = match self.shows(kind) {
            true => (text.as_str(), ""),
            false => ("", text.as_str()),
        };
        let signature = opaque::encode(hidden);
        if *kind == THINKING {
            self.delta("signature_delta", "signature", &signature, out);
        }
        self.stop(text_block(kind, shown, &signature), out);
    }

    fn tool_call(&mut self, call: &CalledTool, out: &mut String) {
        self.close(out);
        self.start(&tool_use(call, &json!({})), out);
        self.call = Some(CalledTool {
            arguments: String::new(),
            ..call.clone()
        });
        if !call.arguments.is_empty() {
            let (_, json) = arguments(&call.arguments);
            self.arguments(&json, out);
        }
    }

    fn arguments(&mut self, json: &str, out: &mut String) {
        self.delta("input_json_delta", "partial_json", json, out);
        if let Some(call) = &mut self.call {
            call.arguments.push_str(json);
        }
    }

    fn end_call(&mut self, out: &mut String) {
        if let Some(call) = self.call.take() {
            let (input, _) = arguments(&call.arguments);
            self.stop(tool_use(&call, &input), out);
        }
    }

    /// Completes the message and writes the last events.
    fn finish(&mut self, usage: &Usage, out: &mut String) {
        if !self.content.iter().any(|block| block["type"] != "thinking") {
            // Clients read the text of the first or last block.
            let open = self.open(&TEXT, out);
            self.close_block(open, out);
        }
        let message = &mut self.message;
        message["content"] = std::mem::take(&mut self.content).into();
        message["usage"] = whole_usage(usage);
        let (reason, sequence) = stop_reason(self.finished.as_ref());
        message["stop_reason"] = reason.into();
        message["stop_sequence"] = sequence.into();
        let delta = json!({
            "type": "message_delta",
            "delta": {
                "stop_reason": reason,
                "stop_sequence": sequence,
                "stop_details": null,
                "container": null,
            },
            "usage": delta_usage(usage),
        });
        sse::named(out, "message_delta", &delta);
        sse::named(out, "message_stop", &json!({ "type": "message_stop" }));
    }
}

impl EventWriter for Writer {
    type Event = Event;

    fn begin(&mut self, out: &mut String) {
        let event = json!({ "type": "message_start", "message": self.message });
        sse::named(out, "message_start", &event);
    }

    fn event(&mut self, event: Event, out: &mut String) -> bool {
        match event {
            Event::Prompt(_) | Event::Progress(_) => {}
            Event::Output(output) => match &output.delta {
                Delta::Text(text) => self.text(&TEXT, text, out),
                Delta::Reasoning(text) => self.text(&THINKING, text, out),
                Delta::ToolCall(call) => self.tool_call(call, out),
                Delta::ToolCallArguments(arguments) => self.arguments(&arguments.text, out),
                Delta::ToolCallEnd => self.end_call(out),
            },
            Event::Finished(finished) => {
                self.close(out);
                self.finished = Some(finished);
            }
            Event::Done(usage) => {
                self.finish(&usage, out);
                return true;
            }
        }
        false
    }

    fn error(&mut self, error: &ApiError, out: &mut String) {
        self.context.record.fail(error);
        let body = error.body(Dialect::Anthropic, &self.context.id);
        sse::named(out, "error", &body);
    }

    fn ping(&mut self, out: &mut String) {
        sse::named(out, "ping", &json!({ "type": "ping" }));
    }
}

/// Returns a block of text. Citations are required, and null is refused by some clients.
fn text_block(kind: &TextKind, text: &str, signature: &str) -> Value {
    let mut block = json!({ "type": kind.block, kind.block: text });
    match *kind == THINKING {
        true => block["signature"] = signature.into(),
        false => block["citations"] = json!([]),
    }
    block
}

/// Returns the block of a tool call.
fn tool_use(call: &CalledTool, input: &Value) -> Value {
    let id = match call.id.strip_prefix("call_") {
        Some(rest) => format!("toolu_{rest}"),
        None => call.id.clone(),
    };
    json!({
        "type": "tool_use",
        "id": id,
        "name": call.name,
        "input": input,
        "caller": { "type": "direct" },
    })
}

/// Returns the arguments of a call as an object and as JSON text.
fn arguments(text: &str) -> (Value, String) {
    match serde_json::from_str(text) {
        Ok(input @ Value::Object(_)) => (input, text.to_string()),
        _ => {
            let input = json!({ "arguments": text });
            (input.clone(), input.to_string())
        }
    }
}

/// Returns the reason of the end, and the stop string.
fn stop_reason(finished: Option<&Finished>) -> (&'static str, Option<&str>) {
    let Some(finished) = finished else {
        return ("max_tokens", None);
    };
    match (finished.reason, finished.stop_string.as_deref()) {
        (FinishReason::Stop, Some(text)) => ("stop_sequence", Some(text)),
        (FinishReason::Stop, None) => ("end_turn", None),
        (FinishReason::Length, _) => ("max_tokens", None),
        (FinishReason::Context, _) => ("model_context_window_exceeded", None),
        (FinishReason::ToolCalls, _) => ("tool_use", None),
    }
}

/// Returns the usage of the last event. Cached tokens are not part of `input_tokens`.
fn delta_usage(usage: &Usage) -> Value {
    // Clients ignore a value of 0 and keep the one of the first event.
    let cached_max = usage.prompt.tokens.saturating_sub(1);
    let cached = usage.prompt.cached.min(cached_max);
    let thinking = match usage.reasoning {
        0 => Value::Null,
        tokens => json!({ "thinking_tokens": tokens }),
    };
    json!({
        "input_tokens": usage.prompt.tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.generated,
        "output_tokens_details": thinking,
        "server_tool_use": null,
    })
}

/// Returns the usage of a message.
fn whole_usage(usage: &Usage) -> Value {
    let mut value = delta_usage(usage);
    for name in ["cache_creation", "inference_geo", "service_tier"] {
        value[name] = Value::Null;
    }
    value
}
