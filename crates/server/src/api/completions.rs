//! `POST /v1/completions`.

use super::common::{
    InputField, StreamOptions, add_timings, choices, choices_response, end_stream, fingerprint,
    logprob, open, timings, total_choices, usage, with_seed,
};
use super::format::FormatFields;
use super::llamacpp::prompt_progress;
use crate::app::{App, unix_seconds};
use crate::engine::answer_grammar;
use crate::engine::blocking::blocking;
use crate::engine::collect::{Answer, Choice, collect};
use crate::engine::conversation::ResponseFormat;
use crate::engine::events::{Delta, Event, Progress, TokenLogprob, Usage};
use crate::engine::extra_fields::{ExtraFields, TimedChunks};
use crate::engine::numbers::Int;
use crate::engine::parameters::{LimitFields, TokenLimit, generate_options};
use crate::engine::request::{Echo, Generate, OutputFormat};
use crate::engine::run;
use crate::http::body::{Json, fields};
use crate::http::error::{ApiError, ApiResult, Dialect};
use crate::http::gate::RequestContext;
use crate::http::ids;
use crate::http::record::Record;
use crate::http::sse::{self, EventWriter};
use crate::models::Loaded;
use axum::body::{Body, Bytes};
use axum::http::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use tabla::GenerateOptions;
use tabla::text::{DecodeOptions, EncodeOptions, SpecialTokens, Tokenizer};
use utoipa::ToSchema;

/// Default of the maximum number of tokens, as in OpenAI's API.
const TOKENS_DEFAULT: u32 = 16;

/// Request of a completion. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CompletionFields {
    /// Name of the model; the default model if it is missing.
    model: Option<String>,
    /// A text, a list of texts, a list of token ids, or a list of such lists.
    #[schema(value_type = Object)]
    prompt: Option<Value>,
    /// Text after the completion, for models with tokens for infilling.
    suffix: Option<String>,
    /// Whether the answer is streamed.
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// Number of choices for each prompt; choice `i` has seed `seed + i`.
    #[schema(value_type = Option<i64>)]
    n: Option<Int>,
    /// Number of choices of which the `n` likeliest are returned.
    #[schema(value_type = Option<i64>)]
    best_of: Option<Int>,
    /// Number of likeliest tokens at each position, 0 to 20.
    #[schema(value_type = Option<i64>)]
    logprobs: Option<Int>,
    /// Whether the answer begins with the prompt.
    echo: Option<bool>,
}

impl CompletionFields {
    /// Returns how the prompt is part of the output.
    fn output_of_prompt(&self, options: &GenerateOptions) -> Option<Echo> {
        let output = match options.logprobs {
            Some(top) if self.logprobs.is_some() => Echo::Logprobs(top),
            _ => Echo::Text,
        };
        self.echo.unwrap_or(false).then_some(output)
    }
}

/// A request after parsing.
struct Prepared {
    prompts: Vec<Vec<u32>>,
    options: GenerateOptions,
    /// Messages for the log: what is not enforced.
    warnings: Vec<String>,
}

/// Answers a request.
pub(crate) async fn create(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (request, mut parsed, lease) = open(&app, &context, bytes, |fields: &CompletionFields| {
        fields.model.as_deref()
    })
    .await?;
    lease.check_text()?;
    let ticket = lease.admit()?;
    let model = lease.model();
    let extra = ExtraFields::parse(&request)?;
    let limit = fields::<LimitFields>(&request)?.limit()?;
    let limit = limit.unwrap_or(TokenLimit::Max(TOKENS_DEFAULT));
    let counts = Counts::new(&parsed, limit, app.limits.choices)?;
    let (prepared, parsed) = {
        let model = Arc::clone(&model);
        let prepare = move || {
            let mut prepared = prepare(&model, &parsed, &request)?;
            prepared.options.max_tokens = limit.max_tokens();
            parsed.prompt = None;
            Ok((prepared, parsed))
        };
        blocking(prepare).await?
    };
    context.memory.release();
    let Prepared {
        prompts,
        options,
        warnings,
    } = prepared;
    warnings.into_iter().for_each(|warning| app.warn(warning));
    let choices = counts.run.max(1);
    let total = total_choices(prompts.len(), choices, app.limits.inputs)?;
    let head = Head {
        id: ids::new_id("cmpl-"),
        created: unix_seconds(),
        model,
        logprobs: parsed.logprobs.is_some(),
    };
    let generation = run::start(Generate {
        lease,
        ticket,
        prompts,
        options: options.clone(),
        choices: counts.run,
        echo: parsed.output_of_prompt(&options),
        format: OutputFormat::Text,
        extras: extra.extras()?,
        deadline: context.deadline.clone(),
        record: Arc::clone(&context.record),
    });
    let response = match parsed.stream.unwrap_or(false) {
        true => {
            let stream_options = parsed.stream_options.unwrap_or_default();
            let writer = Writer {
                has_usage: stream_options.include_usage.unwrap_or(false),
                timed: extra.timed_chunks(),
                texts: vec![LegacyLogprobs::default(); total as usize],
                choices,
                record: Arc::clone(&context.record),
                head,
            };
            sse::response(generation, writer)
        }
        false => head.whole(collect(generation, total).await?, counts),
    };
    Ok(with_seed(response, &options))
}

/// Numbers of choices of each prompt.
#[derive(Clone, Copy)]
struct Counts {
    /// Number of choices that are generated; 0: only the prompt is returned.
    run: u32,
    /// Number of choices that are returned.
    returned: u32,
}

impl Counts {
    fn new(parsed: &CompletionFields, limit: TokenLimit, max: u32) -> ApiResult<Self> {
        let returned = choices(parsed.n, max)?;
        let run = match parsed.best_of {
            Some(best_of) => best_of.u32_in("best_of", returned, max)?,
            None => returned,
        };
        if run > returned && parsed.stream.unwrap_or(false) {
            return Err(ApiError::field("best_of", "cannot be streamed"));
        }
        Ok(Self {
            run: limit.choices(run),
            returned,
        })
    }
}

fn prepare(model: &Loaded, parsed: &CompletionFields, request: &Json) -> ApiResult<Prepared> {
    let mut options = generate_options(request, model)?;
    let needs_logprobs = parsed.logprobs.is_some() || parsed.best_of.is_some();
    let top = match parsed.logprobs {
        Some(top) => top.u32_in("logprobs", 0, GenerateOptions::LOGPROBS_MAX)?,
        None => 0,
    };
    options.logprobs = needs_logprobs.then_some(top);
    let format = FormatFields::combined(request, ResponseFormat::Text)?;
    let mut warnings = Vec::new();
    options.grammar = answer_grammar::compile(model, &format, &mut warnings)?;
    let field = InputField::of("prompt", parsed.prompt.as_ref());
    let mut prompts = prompts(model, "prompt", parsed.prompt.as_ref())?;
    if let Some(suffix) = parsed.suffix.as_deref().filter(|suffix| !suffix.is_empty()) {
        for prompt in &mut prompts {
            *prompt = infill(model, prompt, "suffix", suffix)?;
        }
    }
    for (at, prompt) in prompts.iter().enumerate() {
        let checked = model.check_length(prompt.len());
        checked.map_err(|error| field.prompt_error(at, error))?;
    }
    Ok(Prepared {
        prompts,
        options,
        warnings,
    })
}

/// Returns the token ids of the prompts in a field. Special tokens in texts are parsed, and BOS is added as the
/// vocabulary specifies; nothing is added to ids.
pub(crate) fn prompts(
    model: &Loaded,
    name: &'static str,
    prompt: Option<&Value>,
) -> ApiResult<Vec<Vec<u32>>> {
    let field = InputField::of(name, prompt);
    let one = |(at, prompt): (usize, &Value)| match prompt {
        Value::String(text) => {
            let tokenizer = model.model.tokenizer();
            // Rendered chat templates have special tokens, and may begin with BOS.
            let bos = tokenizer
                .bos()
                .map(|bos| tokenizer.token_bytes_with_special(bos));
            let has_bos =
                bos.is_some_and(|bos| !bos.is_empty() && text.as_bytes().starts_with(bos));
            let options = EncodeOptions::default()
                .add_special(!has_bos)
                .specials(SpecialTokens::Tokens);
            let tokens = model.tokenize(text, options);
            let tokens = tokens.map_err(|error| field.prompt_error(at, error))?;
            match (tokens.is_empty(), model.model.tokenizer().bos()) {
                (false, _) => Ok(tokens),
                (true, Some(bos)) => Ok(vec![bos]),
                (true, None) => {
                    let message = "is empty, and the vocabulary has no BOS token";
                    Err(ApiError::field(field.path(at), message))
                }
            }
        }
        Value::Array(parts) if !parts.is_empty() => mixed(model, &field.path(at), parts),
        _ => {
            let message = "expected a text, token ids, or a list of them";
            Err(ApiError::field(field.path(at), message))
        }
    };
    let one = |(at, prompt): (usize, &Value)| match prompt.get("prompt_string") {
        Some(_) if prompt.get("multimodal_data").is_some() => {
            let path = format!("{}.multimodal_data", field.path(at));
            Err(ApiError::field(path, "images and audio are not supported"))
        }
        Some(text) => one((at, text)),
        None => one((at, prompt)),
    };
    match prompt {
        None | Some(Value::Null) => Err(ApiError::field(name, "is missing")),
        Some(Value::Array(items)) if matches!(field, InputField::List(_)) => {
            if items.is_empty() {
                return Err(ApiError::field(name, "expected at least one prompt"));
            }
            items.iter().enumerate().map(one).collect()
        }
        Some(prompt) => Ok(vec![one((0, prompt))?]),
    }
}

/// Returns the token ids of a list of ids, and texts between them. BOS is added before a text at the start.
pub(crate) fn mixed(model: &Loaded, name: &str, parts: &[Value]) -> ApiResult<Vec<u32>> {
    let has_texts = parts.iter().any(Value::is_string);
    if !has_texts || !parts.iter().any(Value::is_number) {
        return token_ids(model, name, parts);
    }
    let mut tokens = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let name = &format!("{name}[{at}]");
        let Some(text) = part.as_str() else {
            tokens.extend(token_ids(model, name, std::slice::from_ref(part))?);
            continue;
        };
        let options = EncodeOptions::default()
            .add_special(at == 0)
            .specials(SpecialTokens::Tokens);
        let encoded = model.tokenize(text, options);
        tokens.extend(encoded.map_err(|error| error.prompt_field(name))?);
    }
    Ok(tokens)
}

/// Returns token ids after checking their range.
pub(crate) fn token_ids(model: &Loaded, name: &str, ids: &[Value]) -> ApiResult<Vec<u32>> {
    let vocab = model.model.facts().vocab;
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.filter(|id| *id < vocab).ok_or_else(|| {
            let message = format!("expected token ids below {vocab}, got {value}");
            ApiError::field(name, message)
        })
    };
    ids.iter().map(id).collect()
}

/// Tokens for infilling: before the prefix, before the suffix, before the middle.
const INFILL_TOKENS: [[&str; 3]; 4] = [
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["▁<PRE>", "▁<SUF>", "▁<MID>"],
];

/// Returns the prompt for infilling between a prefix and a suffix.
pub(crate) fn infill(
    model: &Loaded,
    prefix: &[u32],
    name: &str,
    suffix: &str,
) -> ApiResult<Vec<u32>> {
    let tokenizer = model.model.tokenizer();
    let ids = |row: &[&str; 3]| {
        let ids = row.map(|text| tokenizer.special_id(text));
        Some([ids[0]?, ids[1]?, ids[2]?])
    };
    let Some([before, between, after]) = INFILL_TOKENS.iter().find_map(ids) else {
        let message = format!("the model {} has no tokens for infilling", model.name);
        return Err(ApiError::unsupported(message));
    };
    // BOS stays at the start.
    let bos = prefix
        .iter()
        .take(usize::from(prefix.first().copied() == tokenizer.bos()));
    let mut prompt: Vec<u32> = bos.copied().collect();
    let begin = prompt.len();
    prompt.push(before);
    prompt.extend_from_slice(&prefix[begin..]);
    prompt.push(between);
    let checked = model.check_bytes(suffix.len());
    checked.map_err(|error| error.prompt_field(name))?;
    let suffix = tokenizer.encode_continuation(suffix);
    prompt.extend(suffix.map_err(|error| ApiError::in_field(name, error))?);
    prompt.push(after);
    Ok(prompt)
}

/// What every chunk of an answer repeats.
struct Head {
    id: String,
    created: u64,
    model: Arc<Loaded>,
    logprobs: bool,
}

impl Head {
    fn object(&self) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model.name,
            "system_fingerprint": fingerprint(&self.model),
        })
    }

    fn tokenizer(&self) -> &Tokenizer {
        self.model.model.tokenizer()
    }

    /// Returns a whole answer.
    fn whole(&self, answer: Answer, counts: Counts) -> Response<Body> {
        let mut prompts: HashMap<u32, Echoed> = HashMap::new();
        for prompt in answer.prompts {
            let echoed = Echoed::new(self.tokenizer(), &prompt.tokens, prompt.logprobs);
            prompts.insert(prompt.choice, echoed);
        }
        let mut returned = Vec::new();
        let run = counts.run.max(1);
        for (at, choices) in (0..).zip(answer.choices.chunks(run as usize)) {
            let prompt = prompts.get(&(at * run));
            let mut best: Vec<&Choice> = choices.iter().collect();
            if run > counts.returned {
                best.sort_by(|a, b| mean_logprob(b).total_cmp(&mean_logprob(a)));
                best.truncate(counts.returned as usize);
            }
            returned.extend(best.into_iter().map(|choice| (prompt, choice)));
        }
        let mut value = self.object();
        value["usage"] = usage(&answer.usage);
        value["timings"] = timings(&answer.usage);
        let choices = returned.into_iter().enumerate();
        let choices = choices.map(|(at, (prompt, choice))| self.choice(at, choice, prompt));
        choices_response(&value, choices)
    }

    fn choice(&self, index: usize, choice: &Choice, prompt: Option<&Echoed>) -> Value {
        let mut text = String::new();
        let mut logprobs = LegacyLogprobs::default();
        if let Some(prompt) = prompt {
            text.push_str(&prompt.text);
            logprobs.push_prompt(self.tokenizer(), prompt);
        }
        text.push_str(&choice.text);
        logprobs.push(self.tokenizer(), &choice.logprobs);
        json!({
            "text": text,
            "index": index,
            "logprobs": self.logprobs.then(|| logprobs.take()),
            "finish_reason": choice.reason().openai(),
        })
    }
}

/// Returns the mean log-probability of the tokens of a choice.
fn mean_logprob(choice: &Choice) -> f64 {
    let sum: f64 = choice
        .logprobs
        .iter()
        .map(|entry| f64::from(entry.logprob))
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    let count = choice.logprobs.len().max(1) as f64;
    sum / count
}

/// A prompt that is part of the output.
struct Echoed {
    text: String,
    tokens: Vec<u32>,
    logprobs: Vec<TokenLogprob>,
}

impl Echoed {
    fn new(tokenizer: &Tokenizer, tokens: &[u32], logprobs: Vec<TokenLogprob>) -> Self {
        let options = DecodeOptions::default().from_start(true);
        Self {
            // Fails only for ids outside the vocabulary, which were checked.
            text: tokenizer.decode_lossy(tokens, options).unwrap_or_default(),
            tokens: tokens.to_vec(),
            logprobs,
        }
    }
}

/// Log-probabilities in the format of completions.
#[derive(Clone, Debug, Default)]
struct LegacyLogprobs {
    tokens: Vec<Value>,
    token_logprobs: Vec<Value>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<usize>,
    /// Number of characters of the tokens so far.
    offset: usize,
    /// Number of characters at the start that are not part of the text.
    removed: usize,
}

impl LegacyLogprobs {
    fn push_prompt(&mut self, tokenizer: &Tokenizer, prompt: &Echoed) {
        if let Some(first) = prompt.tokens.first() {
            self.token(tokenizer, *first);
            self.token_logprobs.push(Value::Null);
            self.top_logprobs.push(Value::Null);
        }
        self.push(tokenizer, &prompt.logprobs);
        // Decoding removes the space that encoding has added.
        self.removed = self.offset.saturating_sub(prompt.text.chars().count());
        for offset in &mut self.text_offset {
            *offset = offset.saturating_sub(self.removed);
        }
    }

    fn push(&mut self, tokenizer: &Tokenizer, entries: &[TokenLogprob]) {
        for entry in entries {
            self.token(tokenizer, entry.token);
            self.token_logprobs.push(logprob(entry.logprob).into());
            let mut top = Map::new();
            for (token, value) in entry.top.iter().chain([&(entry.token, entry.logprob)]) {
                let mut name = spelling(tokenizer, *token);
                // Different tokens can have the same text; the chosen one is listed once.
                let is_other = top.contains_key(&name) && *token != entry.token;
                if is_other {
                    name = byte_spelling(tokenizer, *token);
                }
                top.entry(name).or_insert_with(|| logprob(*value).into());
            }
            self.top_logprobs.push(top.into());
        }
    }

    fn token(&mut self, tokenizer: &Tokenizer, token: u32) {
        self.tokens.push(spelling(tokenizer, token).into());
        self.text_offset
            .push(self.offset.saturating_sub(self.removed));
        self.offset += String::from_utf8_lossy(tokenizer.token_bytes(token))
            .chars()
            .count();
    }

    /// Returns the entries since the last call.
    fn take(&mut self) -> Value {
        json!({
            "tokens": std::mem::take(&mut self.tokens),
            "token_logprobs": std::mem::take(&mut self.token_logprobs),
            "top_logprobs": std::mem::take(&mut self.top_logprobs),
            "text_offset": std::mem::take(&mut self.text_offset),
        })
    }
}

/// Returns the text of a token, or its bytes if they are not UTF-8.
fn spelling(tokenizer: &Tokenizer, token: u32) -> String {
    match str::from_utf8(tokenizer.token_bytes_with_special(token)) {
        Ok(text) => text.to_string(),
        Err(_) => byte_spelling(tokenizer, token),
    }
}

fn byte_spelling(tokenizer: &Tokenizer, token: u32) -> String {
    let bytes = tokenizer.token_bytes_with_special(token).iter();
    bytes.fold("bytes:".to_string(), |text, byte| {
        format!("{text}\\x{byte:02x}")
    })
}

/// Writer of the chunks of a stream.
struct Writer {
    head: Head,
    has_usage: bool,
    timed: TimedChunks,
    texts: Vec<LegacyLogprobs>,
    /// Number of choices of each prompt.
    choices: u32,
    record: Arc<Record>,
}

impl Writer {
    /// Writes a chunk, with these times if the request wants them.
    fn chunk(&self, choice: Value, usage: &Usage, out: &mut String) {
        let mut value = self.head.object();
        value["choices"] = json!([choice]);
        if self.has_usage {
            value["usage"] = Value::Null;
        }
        add_timings(&mut value, self.timed, usage);
        sse::data(out, &value);
    }

    fn progress(&self, progress: &Progress, out: &mut String) {
        let mut value = self.head.object();
        value["choices"] = json!([]);
        value["prompt_progress"] = prompt_progress(progress);
        sse::data(out, &value);
    }

    fn text(&mut self, choice: u32, text: &str, usage: &Usage, out: &mut String) {
        let logprobs = &mut self.texts[choice as usize];
        let logprobs = match self.head.logprobs && !logprobs.tokens.is_empty() {
            true => logprobs.take(),
            false => Value::Null,
        };
        let choice = json!({
            "text": text,
            "index": choice,
            "logprobs": logprobs,
            "finish_reason": null,
        });
        self.chunk(choice, usage, out);
    }
}

impl EventWriter for Writer {
    type Event = Event;

    fn begin(&mut self, _: &mut String) {}

    fn event(&mut self, event: Event, out: &mut String) -> bool {
        match event {
            Event::Prompt(prompt) => {
                let model = Arc::clone(&self.head.model);
                let tokenizer = model.model.tokenizer();
                let echoed = Echoed::new(tokenizer, &prompt.tokens, prompt.logprobs);
                for choice in prompt.choice..prompt.choice + self.choices {
                    self.texts[choice as usize].push_prompt(tokenizer, &echoed);
                    self.text(choice, &echoed.text, &Usage::default(), out);
                }
            }
            Event::Progress(progress) => self.progress(&progress, out),
            Event::Output(output) => {
                let text = &mut self.texts[output.choice as usize];
                text.push(self.head.model.model.tokenizer(), &output.logprobs);
                if let Delta::Text(text) = output.delta {
                    self.text(output.choice, &text, &output.usage, out);
                }
            }
            Event::Finished(finished) => {
                let (index, reason) = (finished.choice, finished.reason.openai());
                let choice = json!({ "text": "", "index": index, "logprobs": null, "finish_reason": reason });
                self.chunk(choice, &finished.usage, out);
            }
            Event::Done(done) => {
                let chunk = self.has_usage.then(|| self.head.object());
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
