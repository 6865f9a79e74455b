//! `/completion` and `/infill` of llama.cpp, which editors use.

use super::common::{FormatFields, json_response, open, timings, with_seed};
use super::completions::{infill, prompts};
use crate::app::App;
use crate::engine::blocking::blocking;
use crate::engine::collect::{Choice, collect};
use crate::engine::events::{Delta, Event, FinishReason, Usage};
use crate::engine::parameters::{Int, LimitFields, SamplingFields, fields};
use crate::engine::request::{Generate, OutputFormat};
use crate::engine::run;
use crate::http::error::{ApiError, ApiResult, Dialect};
use crate::http::gate::RequestContext;
use crate::http::record::Record;
use crate::http::sse::{self, EventWriter};
use crate::models::Loaded;
use axum::body::{Body, Bytes};
use axum::http::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tabla::text::EncodeOptions;
use utoipa::ToSchema;

/// Request of `/completion` and `/infill`. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct LlamaCppFields {
    model: Option<String>,
    /// Text or token ids; of `/infill`: text directly before the cursor.
    #[schema(value_type = Option<Object>)]
    prompt: Option<Value>,
    /// `/infill`: text before the cursor.
    input_prefix: Option<String>,
    /// `/infill`: text after the cursor.
    input_suffix: Option<String>,
    /// `/infill`: other files.
    input_extra: Option<Vec<ExtraFile>>,
    stream: Option<bool>,
    /// Maximum number of tokens; -1: no limit; 0: only the prompt is processed.
    #[schema(value_type = Option<i64>)]
    n_predict: Option<Int>,
}

/// Another file as context.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ExtraFile {
    filename: Option<String>,
    text: Option<String>,
}

/// Completes a prompt.
pub(crate) async fn completion(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    answer(app, context, bytes, |model, parsed| {
        let mut prompts = prompts(model, parsed.prompt.as_ref())?;
        match (prompts.pop(), prompts.is_empty()) {
            (Some(prompt), true) => Ok(prompt),
            _ => Err(ApiError::field(
                "prompt",
                "expected one text or one list of token ids",
            )),
        }
    })
    .await
}

/// Completes the text between a prefix and a suffix.
pub(crate) async fn fill(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    answer(app, context, bytes, |model, parsed| {
        let mut text = String::new();
        for file in parsed.input_extra.iter().flatten() {
            let name = file.filename.as_deref().unwrap_or("tmp");
            text += &format!("--- {name}\n{}\n", file.text.as_deref().unwrap_or_default());
        }
        text += parsed.input_prefix.as_deref().unwrap_or_default();
        text += parsed
            .prompt
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default();
        let prefix = model.tokenize(&text, EncodeOptions::PROMPT)?;
        let suffix = parsed.input_suffix.as_deref().unwrap_or_default();
        infill(model, &prefix, suffix).map_err(|error| ApiError::unsupported(error.message))
    })
    .await
}

async fn answer(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
    prompt: impl FnOnce(&Loaded, &LlamaCppFields) -> ApiResult<Vec<u32>> + Send + 'static,
) -> ApiResult<Response<Body>> {
    let (request, parsed, lease) = open(&app, &context, &bytes, |fields: &LlamaCppFields| {
        fields.model.as_deref()
    })
    .await?;
    lease.check_text()?;
    let ticket = lease.admit()?;
    let model = lease.model();
    let is_stream = parsed.stream.unwrap_or(false);
    // A request without tokens only fills the prefix cache.
    let is_warm_up = parsed.n_predict.is_some_and(|Int(n)| n == 0);
    let prepared = {
        let model = Arc::clone(&model);
        blocking(move || {
            let tokens = prompt(&model, &parsed)?;
            model.check_length(tokens.len())?;
            let sampling: SamplingFields = fields(&request)?;
            let format: FormatFields = fields(&request)?;
            let mut options = sampling.options(&model.model)?;
            options.max_tokens = fields::<LimitFields>(&request)?.tokens()?;
            options.grammar = format.compile(&model)?;
            Ok((tokens, options))
        })
    };
    let (tokens, options) = prepared.await?;
    let choices = if is_warm_up { 0 } else { 1 };
    let generation = run::start(Generate {
        lease,
        ticket,
        prompts: vec![tokens],
        options: options.clone(),
        choices,
        echo: None,
        format: OutputFormat::Text,
        time: app.limits.request_time,
        record: Arc::clone(&context.record),
    });
    let response = match is_stream {
        true => {
            let writer = Writer {
                model,
                finished: Choice::default(),
                record: Arc::clone(&context.record),
            };
            sse::response(generation, writer)
        }
        false => {
            let answer = collect(generation, 1).await?;
            let choice = answer.choices.into_iter().next().unwrap_or_default();
            json_response(&end(&model, &choice.text, &choice, &answer.usage))
        }
    };
    Ok(with_seed(response, &options))
}

/// Returns the last object of an answer.
fn end(model: &Loaded, content: &str, choice: &Choice, usage: &Usage) -> Value {
    let stop_type = match (&choice.stop_string, choice.reason()) {
        (Some(_), _) => "word",
        (None, FinishReason::Stop | FinishReason::ToolCalls) => "eos",
        (None, FinishReason::Length | FinishReason::Context) => "limit",
    };
    json!({
        "index": 0,
        "content": content,
        "stop": true,
        "stop_type": stop_type,
        "stopping_word": choice.stop_string.as_deref().unwrap_or_default(),
        "model": model.name,
        "tokens_predicted": usage.generated,
        "tokens_evaluated": usage.prompt.tokens,
        "tokens_cached": usage.prompt.cached,
        "truncated": choice.reason() == FinishReason::Context,
        "timings": timings(usage),
    })
}

/// Writer of a stream, which has no `[DONE]`.
struct Writer {
    model: Arc<Loaded>,
    finished: Choice,
    record: Arc<Record>,
}

impl EventWriter for Writer {
    type Event = Event;

    fn begin(&mut self, _: &mut String) {}

    fn event(&mut self, event: Event, out: &mut String) -> bool {
        match event {
            Event::Prompt(_) => {}
            Event::Output(output) => {
                if let Delta::Text(text) = output.delta {
                    sse::data(out, &json!({ "index": 0, "content": text, "stop": false }));
                }
            }
            Event::Finished(finished) => {
                self.finished.reason = Some(finished.reason);
                self.finished.stop_string = finished.stop_string;
            }
            Event::Done(usage) => {
                sse::data(out, &end(&self.model, "", &self.finished, &usage));
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
