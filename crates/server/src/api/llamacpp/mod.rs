//! `/completion`, `/completions` without `/v1`, and `/infill` of llama.cpp, which editors use.

mod answer;
mod settings;

pub(super) use answer::{prompt_progress, prompt_text};

use super::common::{InputField, choices, json_response, open, total_choices, with_seed};
use super::completions::{infill, prompts};
use super::format::FormatFields;
use crate::app::App;
use crate::engine::answer_grammar;
use crate::engine::blocking::blocking;
use crate::engine::collect::{Answer, collect};
use crate::engine::conversation::ResponseFormat;
use crate::engine::extra_fields::ExtraFields;
use crate::engine::numbers::Int;
use crate::engine::parameters::{LimitFields, generate_options};
use crate::engine::request::{Extras, Generate, OutputFormat};
use crate::engine::run;
use crate::http::body::{Json, fields};
use crate::http::error::ApiResult;
use crate::http::gate::RequestContext;
use crate::http::sse;
use crate::models::Loaded;
use answer::{AnswerForm, Writer};
use axum::body::{Body, Bytes};
use axum::http::Response;
use serde::Deserialize;
use serde_json::Value;
use settings::Settings;
pub(super) use settings::{kept, sampling};
use std::sync::Arc;
use tabla::GenerateOptions;
use tabla::text::EncodeOptions;
use utoipa::ToSchema;

/// Request of `/completion` and `/infill`. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct LlamaCppFields {
    model: Option<String>,
    /// Text, a list of token ids and texts, an object with a text as `prompt_string`, or a list of them; of
    /// `/infill`: text directly before the cursor.
    #[schema(value_type = Option<Object>)]
    prompt: Option<Value>,
    /// `/infill`: text before the cursor.
    input_prefix: Option<String>,
    /// `/infill`: text after the cursor.
    input_suffix: Option<String>,
    /// `/infill`: other files.
    input_extra: Option<Vec<ExtraFile>>,
    stream: Option<bool>,
    /// Number of answers to each prompt; answer `i` has seed `seed + i`.
    #[serde(alias = "n_cmpl")]
    #[schema(value_type = Option<i64>)]
    n: Option<Int>,
    /// Number of likeliest tokens at each position, 0 to 20. From 1, the answer has
    /// `completion_probabilities`.
    #[schema(value_type = Option<i64>)]
    n_probs: Option<Int>,
    /// Whether the answer has its token ids.
    return_tokens: Option<bool>,
    /// Fields of the answer; `a/b` is the field `b` of `a`. Default: all.
    response_fields: Option<Vec<String>>,
}

impl LlamaCppFields {
    /// Returns the number of likeliest tokens; `None`: no probabilities.
    fn logprobs(&self) -> ApiResult<Option<u32>> {
        let max = GenerateOptions::LOGPROBS_MAX;
        let count = self.n_probs.map(|n| n.u32_in("n_probs", 0, max));
        Ok(count.transpose()?.filter(|count| *count > 0))
    }
}

/// Another file as context.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ExtraFile {
    filename: Option<String>,
    text: String,
}

/// Completes prompts.
pub(crate) async fn completion(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    answer(app, context, bytes, |model, parsed| {
        let field = InputField::of("prompt", parsed.prompt.as_ref());
        let prompts = prompts(model, "prompt", parsed.prompt.as_ref())?;
        for (at, prompt) in prompts.iter().enumerate() {
            let checked = model.check_length(prompt.len());
            checked.map_err(|error| field.prompt_error(at, error))?;
        }
        Ok(prompts)
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
            text += &format!("--- {name}\n{}\n", file.text);
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
        let prompt = infill(model, &prefix, "input_suffix", suffix)?;
        let checked = model.check_length(prompt.len());
        checked.map_err(|error| error.prompt_field("input_prefix"))?;
        Ok(vec![prompt])
    })
    .await
}

/// A request after parsing.
struct Prepared {
    prompts: Vec<Vec<u32>>,
    options: GenerateOptions,
    extras: Extras,
    /// Number of answers to each prompt that are generated.
    choices: u32,
    form: AnswerForm,
    /// Messages for the log: what is not enforced.
    warnings: Vec<String>,
}

async fn answer(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
    prompts: impl FnOnce(&Loaded, &LlamaCppFields) -> ApiResult<Vec<Vec<u32>>> + Send + 'static,
) -> ApiResult<Response<Body>> {
    let (request, parsed, lease) = open(&app, &context, bytes, |fields: &LlamaCppFields| {
        fields.model.as_deref()
    })
    .await?;
    lease.check_text()?;
    let ticket = lease.admit()?;
    let count = choices(parsed.n, app.limits.choices)?;
    let is_stream = parsed.stream.unwrap_or(false);
    let prepared = {
        let model = lease.model();
        blocking(move || {
            let prompts = prompts(&model, &parsed)?;
            prepare(&model, &request, &parsed, prompts, count)
        })
    };
    let Prepared {
        prompts,
        options,
        extras,
        choices,
        form,
        warnings,
    } = prepared.await?;
    context.memory.release();
    warnings.into_iter().for_each(|warning| app.warn(warning));
    let total = total_choices(prompts.len(), form.choices, app.limits.inputs)?;
    let generation = run::start(Generate {
        lease,
        ticket,
        prompts,
        options: options.clone(),
        choices,
        echo: None,
        format: OutputFormat::Text,
        extras,
        deadline: context.deadline.clone(),
        record: Arc::clone(&context.record),
    });
    let response = match is_stream {
        true => sse::response(generation, Writer::new(form, total, &context.record)),
        false => whole(&form, &collect(generation, total).await?),
    };
    Ok(with_seed(response, &options))
}

fn prepare(
    model: &Arc<Loaded>,
    request: &Json,
    parsed: &LlamaCppFields,
    prompts: Vec<Vec<u32>>,
    count: u32,
) -> ApiResult<Prepared> {
    let extra = ExtraFields::parse(request)?;
    let limit = fields::<LimitFields>(request)?.limit()?.unwrap_or_default();
    let format = FormatFields::combined(request, ResponseFormat::Text)?;
    let mut options = generate_options(request, model)?
        .max_tokens(limit.max_tokens())
        .logprobs(parsed.logprobs()?);
    let mut warnings = Vec::new();
    options.grammar = answer_grammar::compile(model, &format, &mut warnings)?;
    let settings = Settings {
        options: &options,
        limit,
        is_stream: parsed.stream.unwrap_or(false),
        timed: extra.timed_chunks(),
    };
    let form = AnswerForm {
        settings: settings.value(model, request)?,
        prompts: prompts
            .iter()
            .map(|prompt| prompt_text(model, prompt))
            .collect(),
        model: Arc::clone(model),
        choices: limit.choices(count).max(1),
        has_tokens: parsed.return_tokens.unwrap_or(false),
        timed: extra.timed_chunks(),
        fields: parsed.response_fields.clone().unwrap_or_default(),
    };
    Ok(Prepared {
        prompts,
        options,
        extras: extra.extras()?,
        choices: limit.choices(count),
        form,
        warnings,
    })
}

/// Returns a whole answer: an object, or a list of objects for several prompts or choices.
fn whole(form: &AnswerForm, answer: &Answer) -> Response<Body> {
    let choices = answer.choices.iter().enumerate();
    let mut values: Vec<Value> = choices.map(|(at, choice)| form.whole(at, choice)).collect();
    match values.len() {
        1 => json_response(&values.remove(0)),
        _ => json_response(&values),
    }
}
