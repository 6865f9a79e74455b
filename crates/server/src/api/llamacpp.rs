//! `/completion` and `/infill` of llama.cpp, which editors use.

use super::common::{
    json_response, logprob, open, timings, token_text, with_alternatives, with_seed,
};
use super::completions::{infill, prompts};
use super::format::FormatFields;
use crate::app::App;
use crate::engine::answer_grammar;
use crate::engine::blocking::blocking;
use crate::engine::collect::{Choice, collect};
use crate::engine::conversation::ResponseFormat;
use crate::engine::events::{Delta, Event, FinishReason, TokenLogprob, Usage};
use crate::engine::numbers::Int;
use crate::engine::parameters::{LimitFields, generate_options};
use crate::engine::request::{Generate, OutputFormat};
use crate::engine::run;
use crate::http::body::fields;
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
use tabla::GenerateOptions;
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
    /// Number of likeliest tokens at each position, 0 to 20. From 1, the answer has
    /// `completion_probabilities`.
    #[schema(value_type = Option<i64>)]
    n_probs: Option<Int>,
    /// Must not be true: probabilities are those before sampling.
    post_sampling_probs: Option<bool>,
    /// Fields of the answer; `a/b` is the field `b` of `a`. Default: all.
    response_fields: Option<Vec<String>>,
}

impl LlamaCppFields {
    /// Returns the number of likeliest tokens; `None`: no probabilities.
    fn logprobs(&self) -> ApiResult<Option<u32>> {
        if self.post_sampling_probs.unwrap_or(false) {
            return Err(ApiError::field("post_sampling_probs", "must be false"));
        }
        let max = GenerateOptions::LOGPROBS_MAX;
        let count = self.n_probs.map(|n| n.u32_in("n_probs", 0, max));
        Ok(count.transpose()?.filter(|count| *count > 0))
    }
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
    answer(app, context, bytes, "prompt", |model, parsed| {
        let mut prompts = prompts(model, "prompt", parsed.prompt.as_ref())?;
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
    answer(app, context, bytes, "input_prefix", |model, parsed| {
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
        let prefix = model.tokenize(&text, EncodeOptions::PROMPT);
        let prefix = prefix.map_err(|error| error.prompt_field("input_prefix"))?;
        let suffix = parsed.input_suffix.as_deref().unwrap_or_default();
        infill(model, &prefix, "input_suffix", suffix)
    })
    .await
}

async fn answer(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
    field: &'static str,
    prompt: impl FnOnce(&Loaded, &LlamaCppFields) -> ApiResult<Vec<u32>> + Send + 'static,
) -> ApiResult<Response<Body>> {
    let (request, parsed, lease) = open(&app, &context, bytes, |fields: &LlamaCppFields| {
        fields.model.as_deref()
    })
    .await?;
    lease.check_text()?;
    let ticket = lease.admit()?;
    let model = lease.model();
    let is_stream = parsed.stream.unwrap_or(false);
    let logprobs = parsed.logprobs()?;
    let form = AnswerForm {
        model: Arc::clone(&model),
        fields: parsed.response_fields.clone().unwrap_or_default(),
    };
    // A request without tokens only fills the prefix cache.
    let is_warm_up = parsed.n_predict.is_some_and(|Int(n)| n == 0);
    let prepared = {
        let model = Arc::clone(&model);
        blocking(move || {
            let tokens = prompt(&model, &parsed)?;
            let checked = model.check_length(tokens.len());
            checked.map_err(|error| error.prompt_field(field))?;
            let format = FormatFields::combined(&request, ResponseFormat::Text)?;
            let mut options = generate_options(&request, &model.model)?;
            options.max_tokens = fields::<LimitFields>(&request)?.tokens()?;
            options.logprobs = logprobs;
            let mut warnings = Vec::new();
            options.grammar = answer_grammar::compile(&model, &format, &mut warnings)?;
            Ok((tokens, options, warnings))
        })
    };
    let (tokens, options, warnings) = prepared.await?;
    context.memory.release();
    warnings.into_iter().for_each(|warning| app.warn(warning));
    let choices = if is_warm_up { 0 } else { 1 };
    let generation = run::start(Generate {
        lease,
        ticket,
        prompts: vec![tokens],
        options: options.clone(),
        choices,
        echo: None,
        format: OutputFormat::Text,
        deadline: context.deadline.clone(),
        record: Arc::clone(&context.record),
    });
    let response = match is_stream {
        true => {
            let writer = Writer {
                form,
                finished: Choice::default(),
                record: Arc::clone(&context.record),
            };
            sse::response(generation, writer)
        }
        false => {
            let answer = collect(generation, 1).await?;
            let choice = answer.choices.into_iter().next().unwrap_or_default();
            json_response(&form.end(&choice.text, &choice, &answer.usage))
        }
    };
    Ok(with_seed(response, &options))
}

/// What the objects of an answer have.
struct AnswerForm {
    model: Arc<Loaded>,
    /// Selected fields of the last object; empty: all.
    fields: Vec<String>,
}

impl AnswerForm {
    /// Returns the last object of an answer.
    fn end(&self, content: &str, choice: &Choice, usage: &Usage) -> Value {
        let stop_type = match (&choice.stop_string, choice.reason()) {
            (Some(_), _) => "word",
            (None, FinishReason::Stop | FinishReason::ToolCalls) => "eos",
            (None, FinishReason::Length | FinishReason::Context) => "limit",
        };
        let mut value = json!({
            "index": 0,
            "content": content,
            "stop": true,
            "stop_type": stop_type,
            "stopping_word": choice.stop_string.as_deref().unwrap_or_default(),
            "model": self.model.name,
            "tokens_predicted": usage.generated,
            "tokens_evaluated": usage.prompt.tokens,
            "tokens_cached": usage.prompt.cached,
            "truncated": choice.reason() == FinishReason::Context,
            "timings": timings(usage),
        });
        self.add_probabilities(&mut value, &choice.logprobs);
        if self.fields.is_empty() {
            return value;
        }
        let selected = self.fields.iter().filter_map(|path| {
            let inner = path
                .split('/')
                .try_fold(&value, |value, name| value.get(name))?;
            Some((path.clone(), inner.clone()))
        });
        Value::Object(selected.collect())
    }

    /// Adds the log-probabilities of tokens, if there are any.
    fn add_probabilities(&self, value: &mut Value, entries: &[TokenLogprob]) {
        if entries.is_empty() {
            return;
        }
        let tokenizer = self.model.model.tokenizer();
        let one = |token: u32, value: f32| {
            json!({
                "id": token,
                "token": token_text(tokenizer, token),
                "bytes": tokenizer.token_bytes_with_special(token),
                "logprob": logprob(value),
            })
        };
        let entries = entries.iter().map(|entry| with_alternatives(entry, one));
        value["completion_probabilities"] = entries.collect::<Vec<_>>().into();
    }
}

/// Writer of a stream, which has no `[DONE]`.
struct Writer {
    form: AnswerForm,
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
                    let mut value = json!({ "index": 0, "content": text, "stop": false });
                    self.form.add_probabilities(&mut value, &output.logprobs);
                    sse::data(out, &value);
                }
            }
            Event::Finished(finished) => {
                self.finished.reason = Some(finished.reason);
                self.finished.stop_string = finished.stop_string;
            }
            Event::Done(usage) => {
                sse::data(out, &self.form.end("", &self.finished, &usage));
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
