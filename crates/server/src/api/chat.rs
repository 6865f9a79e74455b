//! `POST /v1/chat/completions`.

use super::common::{
    StreamOptions, add_timings, chat_logprob, choices, choices_response, end_stream, fingerprint,
    json_response, parse, timings, top_logprobs, usage, with_seed,
};
use super::format::FormatFields;
use super::generation::{self, Settings, Started};
use super::llamacpp::prompt_progress;
use crate::app::{App, unix_seconds};
use crate::engine::collect::{Answer, Choice, collect};
use crate::engine::conversation::{Chat, PromptEnd, ResponseFormat};
use crate::engine::events::{CallArguments, CalledTool, Delta, Event, Output, Progress, Usage};
use crate::engine::extra_fields::{ExtraFields, TimedChunks};
use crate::engine::messages::{normalize, text_arguments};
use crate::engine::numbers::Int;
use crate::engine::parameters::{LimitFields, generate_options};
use crate::engine::tools::{self, Tool, ToolChoice};
use crate::http::body::fields;
use crate::http::error::{ApiError, ApiResult, Dialect};
use crate::http::gate::RequestContext;
use crate::http::ids;
use crate::http::sse::{self, EventWriter};
use crate::models::Loaded;
use axum::body::{Body, Bytes};
use axum::http::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// Request of a chat completion. Unknown fields are ignored.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct ChatFields {
    /// Name of the model; the default model if it is missing.
    pub(crate) model: Option<String>,
    /// Messages: `role`, `content`, `tool_calls`, `tool_call_id`.
    #[schema(value_type = Vec<Object>)]
    messages: Option<Vec<Value>>,
    /// Whether the answer is streamed.
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// Number of choices; choice `i` has seed `seed + i`.
    #[schema(value_type = Option<i64>)]
    n: Option<Int>,
    /// Whether the answer has log-probabilities.
    logprobs: Option<bool>,
    /// Number of likeliest tokens at each position, 0 to 20.
    #[schema(value_type = Option<i64>)]
    top_logprobs: Option<Int>,
    /// Tools: functions with a name, a description and a JSON schema of parameters.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// `none`, `auto`, `required`, or a named function.
    #[schema(value_type = Option<Object>)]
    tool_choice: Option<Value>,
    /// Whether an answer may have several tool calls. Default true.
    parallel_tool_calls: Option<bool>,
    /// Older form of `tools`.
    #[schema(value_type = Option<Vec<Object>>)]
    functions: Option<Vec<Value>>,
    /// Older form of `tool_choice`.
    #[schema(value_type = Option<Object>)]
    function_call: Option<Value>,
    /// Effort of the reasoning; `none` disables it.
    reasoning_effort: Option<String>,
    /// Variables of the chat template.
    #[schema(value_type = Option<Object>)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// Whether the prompt ends with the start of an answer. Default true.
    add_generation_prompt: Option<bool>,
    /// Whether the answer continues the last message. Default: if it is a text of the assistant.
    continue_final_message: Option<bool>,
    /// Whether the answer has the text of the prompt, as `__verbose.prompt`.
    verbose: Option<bool>,
    modalities: Option<Vec<String>>,
}

/// Answers a request.
pub(crate) async fn create(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (request, parsed): (_, ChatFields) = parse(bytes).await?;
    let count = choices(parsed.n, app.limits.choices)?;
    let limit = fields::<LimitFields>(&request)?
        .limit()?
        .unwrap_or_default();
    let extra = ExtraFields::parse(&request)?;
    let settings = Settings {
        choices: limit.choices(count),
        extras: extra.extras()?,
        returns_prompt: parsed.verbose.unwrap_or(false),
    };
    let name = parsed.model.clone();
    let is_stream = parsed.stream.unwrap_or(false);
    let stream_options = parsed.stream_options.unwrap_or_default();
    let build = {
        let tools_max = app.limits.tools;
        move |model: &Loaded| {
            let chat = Chat {
                response: FormatFields::combined(&request, ResponseFormat::Text)?,
                ..parsed.chat(tools_max)?
            };
            let options = generate_options(&request, model)?.max_tokens(limit.max_tokens());
            let top = top_logprobs(parsed.top_logprobs)?;
            let logprobs = parsed.logprobs.unwrap_or(false).then_some(top);
            Ok((chat, options.logprobs(logprobs)))
        }
    };
    let Started {
        model,
        options,
        prompt,
        run: generation,
        ..
    } = {
        let started = generation::start(&app, &context, name.as_deref(), settings, build).await;
        started.map_err(|error| error.prompt_field("messages"))?
    };
    context.memory.release();
    let head = Head {
        id: ids::new_id("chatcmpl-"),
        created: unix_seconds(),
        model,
        logprobs: options.logprobs.is_some(),
        prompt,
    };
    let response = match is_stream {
        true => {
            let writer = Writer {
                head,
                has_usage: stream_options.include_usage.unwrap_or(false),
                timed: extra.timed_chunks(),
                choices: count,
                record: Arc::clone(&context.record),
            };
            sse::response(generation, writer)
        }
        false => head.whole(&collect(generation, count).await?),
    };
    Ok(with_seed(response, &options))
}

impl ChatFields {
    /// Returns the conversation.
    pub(crate) fn chat(&self, tools_max: usize) -> ApiResult<Chat> {
        if self.modalities.iter().flatten().any(|kind| kind != "text") {
            return Err(ApiError::field("modalities", "only text is supported"));
        }
        let mut tools = match (&self.tools, &self.functions) {
            (None, Some(functions)) => parse_functions(functions)?,
            (tools, _) => parse_tools(tools.as_deref().unwrap_or_default())?,
        };
        let (field, choice) = match (&self.tool_choice, &self.function_call) {
            (None, Some(choice)) => ("function_call", Some(choice)),
            (choice, _) => ("tool_choice", choice.as_ref()),
        };
        let tool_choice = match choice {
            Some(choice) => parse_choice(field, choice, &mut tools)?,
            None => ToolChoice::Auto,
        };
        tools::check(&tools, field, &tool_choice, tools_max)?;
        let Some(messages) = &self.messages else {
            return Err(ApiError::field("messages", "expected a list of messages"));
        };
        let messages = normalize(messages)?;
        let chat = Chat {
            text_arguments: text_arguments(&messages),
            messages,
            tools,
            tool_choice,
            parallel_calls: self.parallel_tool_calls.unwrap_or(true),
            response: ResponseFormat::Text,
            reasoning_effort: self.reasoning_effort.clone(),
            variables: self.chat_template_kwargs.clone().unwrap_or_default(),
            prompt_end: self.prompt_end()?,
        };
        if chat.prompt_end == PromptEnd::Continued && !chat.ends_with_answer() {
            let message = "the last message must be a text of the assistant";
            return Err(ApiError::field("continue_final_message", message));
        }
        Ok(chat)
    }

    /// Returns how the prompt ends.
    fn prompt_end(&self) -> ApiResult<PromptEnd> {
        match (self.add_generation_prompt, self.continue_final_message) {
            (Some(true), Some(true)) => {
                let message = "cannot be combined with add_generation_prompt: send one of them";
                Err(ApiError::field("continue_final_message", message))
            }
            (_, Some(true)) => Ok(PromptEnd::Continued),
            (Some(false), _) => Ok(PromptEnd::Conversation),
            (_, Some(false)) => Ok(PromptEnd::Answer),
            (_, None) => Ok(PromptEnd::Automatic),
        }
    }
}

/// Returns the number of prompt tokens of a request.
pub(crate) async fn count(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (_, parsed): (_, ChatFields) = parse(bytes).await?;
    let (name, tools_max) = (parsed.model.clone(), app.limits.tools);
    let build = move |_: &Loaded| Ok((parsed.chat(tools_max)?, Default::default()));
    let tokens = generation::count(&app, &context, name.as_deref(), build).await;
    let tokens = tokens.map_err(|error| error.prompt_field("messages"))?;
    Ok(json_response(&json!({
        "object": "response.input_tokens",
        "input_tokens": tokens,
    })))
}

/// Parses tools. Tools that are not functions are skipped.
fn parse_tools(tools: &[Value]) -> ApiResult<Vec<Tool>> {
    let mut parsed = Vec::new();
    for (at, tool) in tools.iter().enumerate() {
        let path = format!("tools[{at}].function");
        match (tool["type"].as_str(), tool.get("function")) {
            (Some("function") | None, Some(function)) => {
                parsed.push(parse_function(function, &path)?);
            }
            (Some("function") | None, None) => {
                return Err(ApiError::field(path, "expected an object"));
            }
            (Some(_), _) => {}
        }
    }
    Ok(parsed)
}

/// Parses functions of the older form.
fn parse_functions(functions: &[Value]) -> ApiResult<Vec<Tool>> {
    let functions = functions.iter().enumerate();
    functions
        .map(|(at, function)| parse_function(function, &format!("functions[{at}]")))
        .collect()
}

fn parse_function(function: &Value, path: &str) -> ApiResult<Tool> {
    let tool = Tool::new(
        path,
        function["name"].as_str(),
        function["description"].as_str(),
        function.get("parameters"),
    )?;
    Ok(tool.strict(&function["strict"]))
}

/// Parses the choice in a field. A choice of allowed tools removes the others.
fn parse_choice(field: &str, choice: &Value, tools: &mut Vec<Tool>) -> ApiResult<ToolChoice> {
    match choice {
        Value::String(word) => match word.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" | "any" => Ok(ToolChoice::Required),
            word => {
                let message = format!("expected none, auto, required or a function, got {word:?}");
                Err(ApiError::field(field, message))
            }
        },
        choice => {
            if let Some(allowed) = choice.get("allowed_tools") {
                let listed = allowed["tools"].as_array().into_iter().flatten();
                let names: Vec<&str> = listed
                    .filter_map(|tool| tool["function"]["name"].as_str())
                    .collect();
                tools.retain(|tool| names.contains(&tool.name.as_str()));
                return Ok(match allowed["mode"].as_str() {
                    Some("required") => ToolChoice::Required,
                    _ => ToolChoice::Auto,
                });
            }
            let function = choice.get("function").unwrap_or(choice);
            match function.get("name").and_then(Value::as_str) {
                Some(name) => Ok(ToolChoice::Named(name.to_string())),
                None => Err(ApiError::field(field, "expected the name of a function")),
            }
        }
    }
}

/// What every chunk of an answer repeats.
struct Head {
    id: String,
    created: u64,
    model: Arc<Loaded>,
    logprobs: bool,
    /// Text of the prompt, if the request wants it.
    prompt: Option<String>,
}

impl Head {
    /// Returns the fields before the choices.
    fn object(&self, object: &str) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model.name,
            "system_fingerprint": fingerprint(&self.model),
        })
    }

    /// Returns a whole answer.
    fn whole(&self, answer: &Answer) -> Response<Body> {
        let mut value = self.object("chat.completion");
        value["service_tier"] = "default".into();
        value["usage"] = usage(&answer.usage);
        value["timings"] = timings(&answer.usage);
        self.add_prompt(&mut value);
        let choices = answer.choices.iter().enumerate();
        choices_response(&value, choices.map(|(at, choice)| self.choice(at, choice)))
    }

    /// Adds the text of the prompt, if the request wants it.
    fn add_prompt(&self, value: &mut Value) {
        if let Some(prompt) = &self.prompt {
            value["__verbose"] = json!({ "prompt": prompt });
        }
    }

    fn choice(&self, index: usize, choice: &Choice) -> Value {
        let content = match choice.text.is_empty() && !choice.calls.is_empty() {
            true => Value::Null,
            false => choice.text.clone().into(),
        };
        let mut message = json!({
            "role": "assistant",
            "content": content,
            "refusal": null,
            "annotations": [],
        });
        if !choice.reasoning.is_empty() {
            message["reasoning_content"] = choice.reasoning.clone().into();
        }
        if !choice.calls.is_empty() {
            let calls = choice.calls.iter().map(|call| {
                json!({
                    "id": call.id,
                    "type": "function",
                    "function": { "name": call.name, "arguments": call.arguments },
                })
            });
            message["tool_calls"] = calls.collect::<Vec<_>>().into();
        }
        json!({
            "index": index,
            "message": message,
            "finish_reason": choice.reason().openai(),
            "logprobs": self.logprobs(&choice.logprobs),
        })
    }

    fn logprobs(&self, entries: &[crate::engine::events::TokenLogprob]) -> Value {
        if !self.logprobs {
            return Value::Null;
        }
        let tokenizer = self.model.model.tokenizer();
        let content = entries.iter().map(|entry| chat_logprob(tokenizer, entry));
        json!({ "content": content.collect::<Vec<_>>(), "refusal": null })
    }
}

/// Writer of the chunks of a stream.
struct Writer {
    head: Head,
    has_usage: bool,
    timed: TimedChunks,
    choices: u32,
    record: Arc<crate::http::record::Record>,
}

impl Writer {
    /// Returns a chunk.
    fn chunk(&self, choices: Value) -> Value {
        let mut value = self.head.object("chat.completion.chunk");
        value["choices"] = choices;
        if self.has_usage {
            value["usage"] = Value::Null;
        }
        value
    }

    /// Returns a chunk with times, if the request wants them.
    fn timed(&self, choices: Value, usage: &Usage) -> Value {
        let mut value = self.chunk(choices);
        add_timings(&mut value, self.timed, usage);
        value
    }

    fn progress(&self, progress: &Progress, out: &mut String) {
        let choices = json!([choice_delta(progress.choice, json!({}), Value::Null)]);
        let mut value = self.timed(choices, &progress.usage);
        value["prompt_progress"] = prompt_progress(progress);
        sse::data(out, &value);
    }

    fn output(&self, output: Output, out: &mut String) {
        let logprobs = match output.logprobs.is_empty() {
            true => Value::Null,
            false => self.head.logprobs(&output.logprobs),
        };
        let deltas = match output.delta {
            // A token whose text is still held back.
            Delta::Text(text) if text.is_empty() && logprobs.is_null() => Vec::new(),
            Delta::Text(text) => vec![json!({ "content": text })],
            Delta::Reasoning(text) => vec![json!({ "reasoning_content": text })],
            Delta::ToolCall(call) => tool_call(call),
            Delta::ToolCallArguments(arguments) => vec![call_arguments(&arguments)],
            Delta::ToolCallEnd => Vec::new(),
        };
        for delta in deltas {
            let choices = json!([choice_delta(output.choice, delta, logprobs.clone())]);
            sse::data(out, &self.timed(choices, &output.usage));
        }
    }
}

/// Returns a choice with an increment.
fn choice_delta(index: u32, delta: Value, logprobs: Value) -> Value {
    json!({
        "index": index,
        "delta": delta,
        "logprobs": logprobs,
        "finish_reason": null,
    })
}

/// Returns the increments of a tool call: first id and name, then the arguments.
fn tool_call(call: CalledTool) -> Vec<Value> {
    let mut deltas = vec![json!({ "tool_calls": [{
        "index": call.index,
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": "" },
    }] })];
    let (index, text) = (call.index, call.arguments);
    if !text.is_empty() {
        deltas.push(call_arguments(&CallArguments { index, text }));
    }
    deltas
}

fn call_arguments(arguments: &CallArguments) -> Value {
    json!({ "tool_calls": [{
        "index": arguments.index,
        "function": { "arguments": arguments.text },
    }] })
}

impl EventWriter for Writer {
    type Event = Event;

    fn begin(&mut self, out: &mut String) {
        for choice in 0..self.choices {
            let delta = json!({ "role": "assistant", "content": null });
            let choices = json!([choice_delta(choice, delta, Value::Null)]);
            let mut value = self.chunk(choices);
            self.head.add_prompt(&mut value);
            sse::data(out, &value);
        }
    }

    fn event(&mut self, event: Event, out: &mut String) -> bool {
        match event {
            Event::Prompt(_) => {}
            Event::Progress(progress) => self.progress(&progress, out),
            Event::Output(output) => self.output(output, out),
            Event::Finished(finished) => {
                let choices = json!([{
                    "index": finished.choice,
                    "delta": {},
                    "logprobs": null,
                    "finish_reason": finished.reason.openai(),
                }]);
                sse::data(out, &self.timed(choices, &finished.usage));
            }
            Event::Done(done) => {
                let chunk = self
                    .has_usage
                    .then(|| self.head.object("chat.completion.chunk"));
                end_stream(chunk, &done, out);
                return true;
            }
        }
        false
    }

    fn error(&mut self, error: &ApiError, out: &mut String) {
        self.record.fail(error);
        sse::data(out, &error.body(Dialect::OpenAi, ""));
    }
}
