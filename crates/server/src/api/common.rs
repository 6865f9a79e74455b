//! Helpers of endpoints: JSON responses, query parameters, usage, the lease of a model.

use crate::app::App;
use crate::engine::blocking::{CancelOnDrop, blocking};
use crate::engine::events::{TokenLogprob, Usage};
use crate::engine::extra_fields::TimedChunks;
use crate::engine::numbers::Int;
use crate::http::body::{Json, fields};
use crate::http::error::{ApiError, ApiResult};
use crate::http::gate::RequestContext;
use crate::http::sse;
use crate::models::{Lease, Loaded};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, Uri, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tabla::embed::FailedInput;
use tabla::text::Tokenizer;
use tabla::{GenerateOptions, Session};
use utoipa::ToSchema;

/// Returns a response with a JSON body of these parts, which are created while they are sent.
pub(crate) fn json_stream(parts: impl Iterator<Item = String> + Send + 'static) -> Response<Body> {
    let mut parts = parts;
    let chunks = std::iter::from_fn(move || {
        let mut chunk = parts.next()?;
        while let Some(part) = (chunk.len() < CHUNK_BYTES).then(|| parts.next()).flatten() {
            chunk.push_str(&part);
        }
        Some(Ok::<_, std::convert::Infallible>(chunk))
    });
    json_body(Body::from_stream(stream::iter(chunks)))
}

/// Number of bytes of a streamed JSON body that are sent at once.
const CHUNK_BYTES: usize = 32 << 10;

/// Returns a response with an object that has the fields of `head` and these choices. With log-probabilities, the
/// values of a choice take many times the memory of their text, so they are created one by one.
pub(crate) fn choices_response(
    head: &Value,
    choices: impl Iterator<Item = Value>,
) -> Response<Body> {
    let mut text = head.to_string();
    // The brace at the end.
    text.pop();
    text.push_str(",\"choices\":[");
    for (at, choice) in choices.enumerate() {
        let comma = if at > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{choice}");
    }
    text.push_str("]}");
    json_body(text.into())
}

/// Maximum number of bytes of a body that is parsed on a thread that serves connections: a larger one would delay
/// streams.
const ASYNC_BYTES_MAX: usize = 64 << 10;

/// Value that stands for minus infinity, which JSON lacks.
const LOGPROB_MIN: f32 = -9999.0;

/// Returns a response with a JSON body.
pub(crate) fn json_response(value: &impl Serialize) -> Response<Body> {
    // Only maps with keys that are not strings cannot be serialized.
    json_body(serde_json::to_string(value).unwrap_or_default().into())
}

fn json_body(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Parses the body of a request and a group of its fields.
pub(crate) async fn parse<T>(bytes: Bytes) -> ApiResult<(Json, T)>
where
    T: DeserializeOwned + Send + 'static,
{
    parse_with(bytes, |request| {
        let parsed = fields(&request)?;
        Ok((request, parsed))
    })
    .await
}

/// Parses the body of a request by `work`.
pub(crate) async fn parse_with<T: Send + 'static>(
    bytes: Bytes,
    work: impl FnOnce(Json) -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    match bytes.len() <= ASYNC_BYTES_MAX {
        true => work(Json::new(bytes)?),
        false => blocking(move || work(Json::new(bytes)?)).await,
    }
}

/// Parses the body of a request, and returns it with its fields and its model, loaded if needed.
/// `model` returns the name of the model.
pub(crate) async fn open<T: DeserializeOwned + Send + 'static>(
    app: &App,
    context: &RequestContext,
    bytes: Bytes,
    model: fn(&T) -> Option<&str>,
) -> ApiResult<(Json, T, Lease)> {
    let (request, parsed) = parse(bytes).await?;
    let lease = lease(app, context, model(&parsed)).await?;
    Ok((request, parsed, lease))
}

/// Returns the model of a request whose query string may name it.
pub(crate) async fn open_query(app: &App, context: &RequestContext, uri: &Uri) -> ApiResult<Lease> {
    let name = query(uri, "model").map(percent_decoded);
    lease(app, context, name.as_deref()).await
}

/// Returns the model of a request, loaded if needed.
pub(crate) async fn lease(
    app: &App,
    context: &RequestContext,
    name: Option<&str>,
) -> ApiResult<Lease> {
    let lease = app.registry.lease(name).await?;
    context.record.set_model(&lease.name);
    Ok(lease)
}

/// Returns the value of a parameter of the query string.
pub(crate) fn query<'u>(uri: &'u Uri, name: &str) -> Option<&'u str> {
    let pairs = uri.query()?.split('&');
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    let mut values = pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value);
    values.next()
}

/// Decodes percent escapes such as `%2F`.
pub(crate) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).filter(|_| *first == b'%');
        let code = hex.and_then(|hex| u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = &after[if code.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes the end of a stream of OpenAI's older APIs: the usage, if it is requested, and the last line.
pub(crate) fn end_stream(usage_chunk: Option<Value>, done: &Usage, out: &mut String) {
    if let Some(mut chunk) = usage_chunk {
        chunk["choices"] = json!([]);
        chunk["usage"] = usage(done);
        chunk["timings"] = timings(done);
        sse::data(out, &chunk);
    }
    out.push_str("data: [DONE]\n\n");
}

/// Adds the seed of a generation, with which a request can be repeated.
pub(crate) fn with_seed(mut response: Response<Body>, options: &GenerateOptions) -> Response<Body> {
    let seed = options.sampling.seed;
    response.headers_mut().insert("x-seed", seed.into());
    response
}

/// Options of a stream.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
    /// Whether the last chunk has the usage.
    pub(crate) include_usage: Option<bool>,
}

/// Returns the log-probability as a JSON number.
pub(crate) fn logprob(value: f32) -> f32 {
    if value.is_finite() {
        value
    } else {
        LOGPROB_MIN
    }
}

/// Returns the text of a token.
pub(crate) fn token_text(tokenizer: &Tokenizer, token: u32) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes_with_special(token)).into_owned()
}

/// Returns a log-probability in the format of chat completions and responses.
pub(crate) fn chat_logprob(tokenizer: &Tokenizer, entry: &TokenLogprob) -> Value {
    with_alternatives(entry, |token, value| {
        json!({
            "token": token_text(tokenizer, token),
            "logprob": logprob(value),
            "bytes": tokenizer.token_bytes_with_special(token),
        })
    })
}

/// Returns a log-probability and those of the likeliest tokens, each in the format of `one`.
pub(crate) fn with_alternatives(entry: &TokenLogprob, one: impl Fn(u32, f32) -> Value) -> Value {
    let mut value = one(entry.token, entry.logprob);
    let top = entry.top.iter().map(|(token, value)| one(*token, *value));
    value["top_logprobs"] = top.collect::<Vec<_>>().into();
    value
}

/// Returns the usage in the format of chat completions.
pub(crate) fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt.tokens,
        "completion_tokens": usage.generated,
        "total_tokens": usage.prompt.tokens + usage.generated,
        "prompt_tokens_details": { "cached_tokens": usage.prompt.cached },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning },
    })
}

/// Returns the times in the format of llama.cpp.
pub(crate) fn timings(usage: &Usage) -> Value {
    let computed = usage.prompt.tokens - usage.prompt.cached.min(usage.prompt.tokens);
    // The first token is sampled from the logits of the prompt.
    let steps = usage.generated.saturating_sub(1);
    let prompt = Speed::new(computed, usage.prompt_time);
    let generation = Speed::new(steps, usage.generation_time);
    json!({
        "cache_n": usage.prompt.cached,
        "prompt_n": computed,
        "prompt_ms": prompt.millis,
        "prompt_per_token_ms": prompt.per_token_millis,
        "prompt_per_second": prompt.per_second,
        "predicted_n": usage.generated,
        "predicted_ms": generation.millis,
        "predicted_per_token_ms": generation.per_token_millis,
        "predicted_per_second": generation.per_second,
    })
}

/// Adds times to a chunk of a stream, if the request wants them.
pub(crate) fn add_timings(value: &mut Value, chunks: TimedChunks, usage: &Usage) {
    if chunks == TimedChunks::All {
        value["timings"] = timings(usage);
    }
}

/// A number of tokens and the time that they took.
struct Speed {
    millis: f64,
    /// 0 without tokens.
    per_token_millis: f64,
    /// 0 without a time.
    per_second: f64,
}

impl Speed {
    fn new(tokens: u64, time: Duration) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a rate for display")]
        let count = tokens as f64;
        let millis = time.as_secs_f64() * 1e3;
        let ratio = |value: f64, divisor: f64| if divisor > 0.0 { value / divisor } else { 0.0 };
        Self {
            millis,
            per_token_millis: ratio(millis, count),
            per_second: ratio(count * 1e3, millis),
        }
    }
}

/// Returns the number of choices.
pub(crate) fn choices(n: Option<Int>, max: u32) -> ApiResult<u32> {
    n.map_or(Ok(1), |n| n.u32_in("n", 1, max))
}

/// Returns the number of choices of all prompts, `choices` of each.
///
/// # Errors
///
/// Status 400 if there are more than `max`.
pub(crate) fn total_choices(prompts: usize, choices: u32, max: usize) -> ApiResult<u32> {
    let total = prompts.saturating_mul(choices as usize);
    match u32::try_from(total) {
        Ok(count) if total <= max => Ok(count),
        _ => {
            let message = format!("expected at most {max} prompts times choices, got {total}");
            Err(ApiError::field("prompt", message))
        }
    }
}

/// Returns the number of alternatives of `top_logprobs`.
pub(crate) fn top_logprobs(value: Option<Int>) -> ApiResult<u32> {
    let max = GenerateOptions::LOGPROBS_MAX;
    value.map_or(Ok(0), |value| value.u32_in("top_logprobs", 0, max))
}

/// Returns the fingerprint of the configuration: build and device.
pub(crate) fn fingerprint(model: &Loaded) -> String {
    let facts = model.model.facts();
    format!("tabla-{}-{}", env!("CARGO_PKG_VERSION"), facts.dtype)
}

/// Work on a session, on a thread of its own. It is cancelled if the request is dropped.
pub(crate) struct Blocking {
    model: Arc<Loaded>,
    session: Session,
    cancel: CancelOnDrop,
}

impl Blocking {
    pub(crate) fn new(lease: &Lease) -> Self {
        let model = lease.model();
        let session = model.session();
        Self {
            cancel: CancelOnDrop(session.canceller()),
            session,
            model,
        }
    }

    /// Runs `work` and waits for its result.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(&Loaded, &mut Session) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let Self {
            model,
            mut session,
            cancel,
        } = self;
        let result = blocking(move || {
            let result = work(&model, &mut session);
            result.map_err(|error| model.explain(error))
        })
        .await;
        drop(cancel);
        result
    }
}

/// A field that has one input or a list of inputs, for errors that name an input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InputField {
    /// The field is the input.
    One(&'static str),
    /// The field is a list of inputs.
    List(&'static str),
}

impl InputField {
    /// Returns the field `name` with this value. A list with a number is one input: token ids, and texts between them.
    pub(crate) fn of(name: &'static str, value: Option<&Value>) -> Self {
        match value {
            Some(Value::Array(items)) if !items.iter().any(Value::is_number) => Self::List(name),
            _ => Self::One(name),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One(name) | Self::List(name) => name,
        }
    }

    /// Returns the path of an input.
    pub(crate) fn path(self, index: usize) -> String {
        match self {
            Self::One(name) => name.to_string(),
            Self::List(name) => format!("{name}[{index}]"),
        }
    }

    /// Creates the error of inputs that the library rejects.
    pub(crate) fn error(self, error: tabla::Error) -> ApiError {
        let source = std::error::Error::source(&error);
        let failed = source.and_then(|source| source.downcast_ref::<FailedInput>());
        match failed {
            Some(failed) => ApiError::field(self.path(failed.index), &failed.reason),
            None => ApiError::in_field(self.name(), error),
        }
    }

    /// Names an input that does not fit the context or that the library rejects.
    pub(crate) fn prompt_error(self, index: usize, error: ApiError) -> ApiError {
        match self {
            Self::List(_) if error.code == Some(ApiError::CONTEXT_LENGTH) => {
                error.in_path(&self.path(index))
            }
            _ => error.prompt_field(&self.path(index)),
        }
    }

    /// Checks the length of an input in bytes before it is tokenized.
    pub(crate) fn check_bytes(self, model: &Loaded, index: usize, bytes: usize) -> ApiResult<()> {
        model.check_bytes(bytes).map_err(|_| {
            let max = model.model.embedding_max_tokens();
            let message = format!(
                "has {bytes} bytes, more than {max} tokens can have: shorten it or enable truncation"
            );
            ApiError::field(self.path(index), message)
        })
    }
}

/// Encoding of numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Encoding {
    /// JSON numbers.
    Float,
    /// Little-endian 32-bit floats in base64.
    Base64,
}

impl Encoding {
    /// Parses the field `encoding_format`.
    pub(crate) fn find(name: Option<&str>) -> ApiResult<Self> {
        match name {
            None | Some("float") => Ok(Self::Float),
            Some("base64") => Ok(Self::Base64),
            Some(other) => {
                let message = format!("expected float or base64, got {other:?}");
                Err(ApiError::field("encoding_format", message))
            }
        }
    }

    /// Returns numbers in this encoding.
    pub(crate) fn numbers(self, values: &[f32]) -> Numbers<'_> {
        Numbers {
            encoding: self,
            values,
        }
    }
}

/// Numbers in an answer. They are written without a value for each, which takes 20 times their memory.
pub(crate) struct Numbers<'v> {
    encoding: Encoding,
    values: &'v [f32],
}

impl Serialize for Numbers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.encoding {
            Encoding::Float => serializer.collect_seq(self.values.iter().map(|x| f64::from(*x))),
            Encoding::Base64 => {
                let bytes: Vec<u8> = self.values.iter().flat_map(|x| x.to_le_bytes()).collect();
                serializer.serialize_str(&STANDARD.encode(bytes))
            }
        }
    }
}
