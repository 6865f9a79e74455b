//! Writer of the events of a response. The last event has the whole answer.

use super::answer::{
    CallKind, Ending, MESSAGE, REASONING, TextKind, call_item, error_code, part, text_item, usage,
};
use super::tools::{ClientCall, ToolKind, ToolTable};
use crate::api::common::{chat_logprob, timings};
use crate::api::llamacpp::prompt_progress;
use crate::api::opaque;
use crate::app::unix_seconds;
use crate::engine::events::{CalledTool, Delta, Event, Output, Usage};
use crate::engine::extra_fields::TimedChunks;
use crate::http::error::ApiError;
use crate::http::ids;
use crate::http::memory::BodyMemory;
use crate::http::record::Record;
use crate::http::sse::{self, EventWriter};
use crate::models::Loaded;
use crate::response_store::{ResponseStore, StoredResponse};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Writer of the events of a response.
pub(crate) struct Writer {
    /// The response object.
    pub(super) response: Value,
    pub(super) tools: ToolTable,
    pub(super) extras: Extras,
    pub(super) storage: Option<Storage>,
    pub(super) record: Arc<Record>,
    progress: Progress,
}

/// Where the response is stored.
pub(crate) struct Storage {
    pub(super) store: Arc<ResponseStore>,
    /// Items of the request.
    pub(super) items: Vec<Value>,
    /// Memory of the items.
    pub(super) _memory: Arc<BodyMemory>,
}

/// Additional output that the request includes.
#[derive(Default)]
pub(crate) struct Extras {
    /// The model, if tokens have log-probabilities.
    pub(super) logprobs: Option<Arc<Loaded>>,
    /// Whether reasoning items have `encrypted_content`.
    pub(super) has_encrypted_reasoning: bool,
    pub(super) timed: TimedChunks,
}

/// State of the output.
#[derive(Default)]
struct Progress {
    /// Number of events.
    events: u64,
    /// Times for the next event.
    timings: Option<Value>,
    /// Finished items.
    output: Vec<Value>,
    /// The text item that is being written.
    open: Option<OpenItem>,
    /// The call that is being written.
    call: Option<OpenCall>,
    ending: Option<Ending>,
}

struct OpenCall {
    id: String,
    called: CalledTool,
}

struct OpenItem {
    kind: &'static TextKind,
    id: String,
    text: String,
    logprobs: Vec<Value>,
}

impl Writer {
    pub(super) fn new(response: Value, tools: ToolTable, record: Arc<Record>) -> Self {
        Self {
            response,
            tools,
            extras: Extras::default(),
            storage: None,
            record,
            progress: Progress::default(),
        }
    }

    fn emit(&mut self, name: &str, fields: Value, out: &mut String) {
        let mut event = json!({ "type": name, "sequence_number": self.progress.events });
        self.progress.events += 1;
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        if let Some(timings) = self.progress.timings.take() {
            event["timings"] = timings;
        }
        sse::named(out, name, &event);
    }

    fn emit_response(&mut self, name: &str, out: &mut String) {
        let fields = json!({ "response": self.response });
        self.emit(name, fields, out);
    }

    /// Emits an event of the item that is being written.
    fn emit_item(&mut self, name: &str, id: &str, fields: Value, out: &mut String) {
        let index = self.progress.output.len();
        let mut event = Map::new();
        event.insert("item_id".to_string(), id.into());
        event.insert("output_index".to_string(), index.into());
        if let Value::Object(fields) = fields {
            event.extend(fields);
        }
        self.emit(name, event.into(), out);
    }

    fn added(&mut self, item: &Value, out: &mut String) {
        let index = self.progress.output.len();
        let fields = json!({ "output_index": index, "item": item });
        self.emit("response.output_item.added", fields, out);
    }

    fn done(&mut self, item: Value, out: &mut String) {
        let index = self.progress.output.len();
        let fields = json!({ "output_index": index, "item": item });
        self.emit("response.output_item.done", fields, out);
        self.progress.output.push(item);
    }

    /// Returns the open item of this kind; closes an item of another kind.
    fn open(&mut self, kind: &'static TextKind, out: &mut String) -> OpenItem {
        match self.progress.open.take() {
            Some(open) if open.kind == kind => return open,
            Some(open) => self.close_item(open, Ending::Completed, out),
            None => {}
        }
        let id = ids::new_id(kind.id_prefix);
        self.added(&text_item(kind, &id, "in_progress", Vec::new()), out);
        let fields = json!({ "content_index": 0, "part": part(kind, "", &[]) });
        self.emit_item("response.content_part.added", &id, fields, out);
        OpenItem {
            kind,
            id,
            text: String::new(),
            logprobs: Vec::new(),
        }
    }

    fn text(&mut self, kind: &'static TextKind, text: &str, output: &Output, out: &mut String) {
        let logprobs: Vec<Value> = match &self.extras.logprobs {
            Some(model) => {
                let tokenizer = model.model.tokenizer();
                let entries = output.logprobs.iter();
                entries
                    .map(|entry| chat_logprob(tokenizer, entry))
                    .collect()
            }
            None => Vec::new(),
        };
        if text.is_empty() && logprobs.is_empty() {
            return;
        }
        let mut open = self.open(kind, out);
        let mut fields = json!({ "content_index": 0, "delta": text });
        if *kind == MESSAGE {
            fields["logprobs"] = logprobs.as_slice().into();
        }
        self.time(&output.usage);
        self.emit_item(kind.delta, &open.id, fields, out);
        open.text.push_str(text);
        open.logprobs.extend(logprobs);
        self.progress.open = Some(open);
    }

    fn close(&mut self, ending: Ending, out: &mut String) {
        if let Some(open) = self.progress.open.take() {
            self.close_item(open, ending, out);
        }
        self.end_call(ending, out);
    }

    fn close_item(&mut self, open: OpenItem, ending: Ending, out: &mut String) {
        let kind = open.kind;
        let mut fields = json!({ "content_index": 0, "text": open.text });
        if *kind == MESSAGE {
            fields["logprobs"] = open.logprobs.as_slice().into();
        }
        self.emit_item(kind.done, &open.id, fields, out);
        let part = part(kind, &open.text, &open.logprobs);
        let fields = json!({ "content_index": 0, "part": part });
        self.emit_item("response.content_part.done", &open.id, fields, out);
        let mut item = text_item(kind, &open.id, ending.status(), vec![part]);
        if *kind == REASONING && self.extras.has_encrypted_reasoning {
            item["encrypted_content"] = opaque::encode(&open.text).into();
        }
        self.done(item, out);
    }

    fn tool_call(&mut self, called: &CalledTool, out: &mut String) {
        self.close(Ending::Completed, out);
        let call = self.tools.client_call(&called.name, "");
        let open = OpenCall {
            id: ids::new_id(CallKind::of(call.kind).id_prefix),
            called: CalledTool {
                arguments: String::new(),
                ..called.clone()
            },
        };
        self.added(&open.item(&call, "", "in_progress"), out);
        self.progress.call = Some(open);
        if !called.arguments.is_empty() {
            self.arguments(&called.arguments, out);
        }
    }

    fn arguments(&mut self, text: &str, out: &mut String) {
        let Some(mut open) = self.progress.call.take() else {
            return;
        };
        open.called.arguments.push_str(text);
        let call = self.tools.client_call(&open.called.name, "");
        // The input of a custom tool is a string within the arguments, so it is written at their end.
        if call.kind == ToolKind::Function {
            let delta = json!({ "delta": text });
            self.emit_item(CallKind::of(call.kind).delta, &open.id, delta, out);
        }
        self.progress.call = Some(open);
    }

    fn end_call(&mut self, ending: Ending, out: &mut String) {
        let Some(open) = self.progress.call.take() else {
            return;
        };
        let call = self
            .tools
            .client_call(&open.called.name, &open.called.arguments);
        let kind = CallKind::of(call.kind);
        let mut done = json!({ kind.payload: call.payload });
        match call.kind {
            ToolKind::Function => done["name"] = call.name.clone().into(),
            ToolKind::Custom => {
                let delta = json!({ "delta": call.payload });
                self.emit_item(kind.delta, &open.id, delta, out);
            }
        }
        self.emit_item(kind.done, &open.id, done, out);
        self.done(open.item(&call, &call.payload, ending.status()), out);
    }

    fn output(&mut self, output: &Output, out: &mut String) {
        match &output.delta {
            Delta::Text(text) => self.text(&MESSAGE, text, output, out),
            Delta::Reasoning(text) => self.text(&REASONING, text, output, out),
            Delta::ToolCall(call) => self.tool_call(call, out),
            Delta::ToolCallArguments(arguments) => self.arguments(&arguments.text, out),
            Delta::ToolCallEnd => self.end_call(Ending::Completed, out),
        }
    }

    /// Sets the times of the next event, if the request wants them.
    fn time(&mut self, usage: &Usage) {
        self.progress.timings = (self.extras.timed == TimedChunks::All).then(|| timings(usage));
    }

    /// Completes the response object, stores it, and writes the last event.
    fn finish(&mut self, done: &Usage, out: &mut String) {
        let ending = self.progress.ending.unwrap_or(Ending::Incomplete);
        if self.progress.output.is_empty() {
            // Clients expect at least one item.
            let open = self.open(&MESSAGE, out);
            self.close_item(open, ending, out);
        }
        let response = &mut self.response;
        response["status"] = ending.status().into();
        response["output"] = std::mem::take(&mut self.progress.output).into();
        response["usage"] = usage(done);
        match ending {
            Ending::Completed => response["completed_at"] = unix_seconds().into(),
            Ending::Incomplete => {
                response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
            }
        }
        self.store();
        self.time(done);
        self.emit_response(ending.event(), out);
    }

    fn store(&mut self) {
        let Some(storage) = self.storage.take() else {
            return;
        };
        let mut items = storage.items;
        items.extend(
            self.response["output"]
                .as_array()
                .into_iter()
                .flatten()
                .cloned(),
        );
        let previous = self.response["previous_response_id"].as_str();
        storage.store.insert(StoredResponse {
            previous: previous.map(str::to_string),
            response: self.response.clone(),
            items,
        });
    }
}

impl OpenCall {
    /// Returns the item of the call.
    fn item(&self, call: &ClientCall, payload: &str, status: &str) -> Value {
        let mut item = call_item(call, &self.id, &self.called.id, payload);
        // Calls of custom tools have no status.
        if call.kind == ToolKind::Function {
            item["status"] = status.into();
        }
        item
    }
}

impl EventWriter for Writer {
    type Event = Event;

    fn begin(&mut self, out: &mut String) {
        self.emit_response("response.created", out);
        self.emit_response("response.in_progress", out);
    }

    fn event(&mut self, event: Event, out: &mut String) -> bool {
        match event {
            Event::Prompt(_) => {}
            Event::Progress(progress) => {
                self.time(&progress.usage);
                let progress = prompt_progress(&progress);
                let fields = json!({ "response": self.response, "prompt_progress": progress });
                self.emit("response.in_progress", fields, out);
            }
            Event::Output(output) => self.output(&output, out),
            Event::Finished(finished) => {
                let ending = Ending::of(finished.reason);
                self.progress.ending = Some(ending);
                self.close(ending, out);
            }
            Event::Done(done) => {
                self.finish(&done, out);
                return true;
            }
        }
        false
    }

    /// Writes the event `error`, which some clients read, and `response.failed`, which others read.
    fn error(&mut self, error: &ApiError, out: &mut String) {
        self.record.fail(error);
        self.close(Ending::Incomplete, out);
        let code = error_code(error);
        let fields = json!({ "code": code, "message": error.message, "param": error.param });
        self.emit("error", fields, out);
        self.response["status"] = "failed".into();
        self.response["error"] = json!({ "code": code, "message": error.message });
        self.response["output"] = std::mem::take(&mut self.progress.output).into();
        self.emit_response("response.failed", out);
    }
}
