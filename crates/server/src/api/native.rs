//! Endpoints of llama.cpp and vLLM for tokens, templates and scores.

use super::chat::ChatFields;
use super::common::{
    Blocking, InputField, json_response, json_stream, logprob, open, open_query, token_text,
};
use super::completions::{prompts, token_ids};
use crate::app::App;
use crate::engine::blocking::blocking;
use crate::engine::chat::prompt;
use crate::engine::numbers::Int;
use crate::http::error::{ApiError, ApiResult};
use crate::http::gate::RequestContext;
use axum::body::{Body, Bytes};
use axum::http::{Response, Uri};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::iter::once;
use std::sync::Arc;
use tabla::text::{DecodeOptions, EncodeOptions, SpecialTokens, Tokenizer};
use utoipa::ToSchema;

/// Request of `/tokenize`.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TokenizeFields {
    model: Option<String>,
    /// Text.
    #[serde(alias = "prompt", alias = "text")]
    content: Option<String>,
    /// Whether BOS and EOS are added as the vocabulary specifies. Default false.
    #[serde(alias = "add_special_tokens")]
    add_special: Option<bool>,
    /// Whether special tokens in the text are parsed. Default true, as in llama.cpp.
    parse_special: Option<bool>,
    /// Whether each token has its text, or its bytes if they are not valid UTF-8.
    with_pieces: Option<bool>,
}

/// Returns the text of a token in JSON, or its bytes if they are not valid UTF-8.
fn piece(tokenizer: &Tokenizer, id: u32) -> Value {
    let bytes = tokenizer.token_bytes_with_special(id);
    str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text))
}

/// Converts text to token ids.
pub(crate) async fn tokenize(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (_, parsed, lease) = open(&app, &context, bytes, |fields: &TokenizeFields| {
        fields.model.as_deref()
    })
    .await?;
    let Some(text) = parsed.content else {
        return Err(ApiError::field("content", "expected a string"));
    };
    let parses_special = parsed.parse_special.unwrap_or(true);
    let options = EncodeOptions::default()
        .add_special(parsed.add_special.unwrap_or(false))
        .specials(match parses_special {
            true => SpecialTokens::Tokens,
            false => SpecialTokens::Text,
        });
    let with_pieces = parsed.with_pieces.unwrap_or(false);
    blocking(move || {
        let ids = lease.model.tokenizer().encode(&text, options);
        let ids = ids.map_err(|error| ApiError::in_field("content", error))?;
        drop(text);
        let (count, context) = (ids.len(), lease.model.facts().context);
        let end = format!("],\"count\":{count},\"max_model_len\":{context}}}");
        let tokens = ids.into_iter().enumerate().map(move |(at, id)| {
            let comma = if at > 0 { "," } else { "" };
            match with_pieces {
                true => {
                    let piece = piece(lease.model.tokenizer(), id);
                    format!("{comma}{{\"id\":{id},\"piece\":{piece}}}")
                }
                false => format!("{comma}{id}"),
            }
        });
        let begin = "{\"tokens\":[".to_string();
        Ok(json_stream(once(begin).chain(tokens).chain(once(end))))
    })
    .await
}

/// Returns the special tokens and the chat template, as vLLM does.
pub(crate) async fn tokenizer_info(
    app: Arc<App>,
    context: RequestContext,
    uri: Uri,
) -> ApiResult<Response<Body>> {
    let lease = open_query(&app, &context, &uri).await?;
    let tokenizer = lease.model.tokenizer();
    let text = |token: Option<u32>| token.map(|token| token_text(tokenizer, token));
    let template = lease.template(&[]).ok();
    Ok(json_response(&json!({
        "bos_token": text(tokenizer.bos()),
        "eos_token": text(tokenizer.eos()),
        "pad_token": null,
        "chat_template": template.map(|template| template.source()),
    })))
}

/// Request of `/detokenize`.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DetokenizeFields {
    model: Option<String>,
    /// Token ids.
    #[schema(value_type = Vec<i64>)]
    tokens: Option<Vec<Int>>,
}

/// Converts token ids to text.
pub(crate) async fn detokenize(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (_, parsed, lease) = open(&app, &context, bytes, |fields: &DetokenizeFields| {
        fields.model.as_deref()
    })
    .await?;
    let Some(tokens) = parsed.tokens else {
        return Err(ApiError::field("tokens", "expected a list of token ids"));
    };
    let max = lease.model.facts().vocab.saturating_sub(1);
    let ids = tokens.iter().map(|id| id.u32_in("tokens", 0, max));
    let ids: Vec<u32> = ids.collect::<ApiResult<_>>()?;
    let options = DecodeOptions::default().specials(SpecialTokens::Tokens);
    blocking(move || {
        let text = lease.model.tokenizer().decode_lossy(&ids, options)?;
        Ok(json_response(&json!({ "content": text, "prompt": text })))
    })
    .await
}

/// Returns the rendered chat template of a conversation.
pub(crate) async fn apply_template(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (_, parsed, lease) = open(&app, &context, bytes, |fields: &ChatFields| {
        fields.model.as_deref()
    })
    .await?;
    let tools_max = app.limits.tools;
    blocking(move || {
        let chat = parsed.chat(tools_max)?;
        let prompt = prompt(&lease, &chat).map_err(|error| error.prompt_field("messages"))?;
        Ok(json_response(&json!({ "prompt": prompt.text })))
    })
    .await
}

/// Request of `/score`.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ScoreFields {
    model: Option<String>,
    /// Text or token ids before the scored text.
    #[schema(value_type = Option<Object>)]
    prompt: Option<Value>,
    /// Texts or lists of token ids, each scored as a continuation of the prompt.
    #[schema(value_type = Vec<Object>)]
    continuations: Option<Vec<Value>>,
}

/// Answer with log-probabilities.
#[derive(Serialize)]
struct Scores<'a> {
    model: &'a str,
    scores: Vec<Score>,
}

#[derive(Serialize)]
struct Score {
    tokens: Vec<u32>,
    logprobs: Vec<f64>,
    sum: f64,
}

/// Returns the log-probabilities of given texts.
pub(crate) async fn score(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let (_, parsed, lease) = open(&app, &context, bytes, |fields: &ScoreFields| {
        fields.model.as_deref()
    })
    .await?;
    lease.check_text()?;
    let inputs = parsed.continuations.unwrap_or_default();
    let max = app.limits.inputs;
    if inputs.is_empty() || inputs.len() > max {
        let message = format!("expected 1 to {max} texts, got {}", inputs.len());
        return Err(ApiError::field("continuations", message));
    }
    let mut slot = lease.admit()?.pass_slot(context.deadline).await;
    let work = Blocking::new(&lease);
    work.run(move |lease, session| {
        let prompt = prompts(lease, "prompt", parsed.prompt.as_ref())?;
        let [prompt] = prompt.as_slice() else {
            return Err(ApiError::field(
                "prompt",
                "expected one text or one list of token ids",
            ));
        };
        let text = parsed.prompt.as_ref().and_then(Value::as_str);
        let results = inputs.iter().enumerate().map(|(at, input)| {
            let field = InputField::List("continuations");
            let path = field.path(at);
            let tokens = match (input, text) {
                (Value::String(input), Some(text)) => {
                    let tokens = lease.tokenize(&format!("{text}{input}"), EncodeOptions::PROMPT);
                    tokens.map_err(|error| field.prompt_error(at, error))?
                }
                (Value::String(input), None) => {
                    let tokens = lease.model.tokenizer().encode_continuation(input);
                    let tokens = tokens.map_err(|error| ApiError::in_field(&path, error))?;
                    [prompt.clone(), tokens].concat()
                }
                (Value::Array(ids), _) => [prompt.clone(), token_ids(lease, &path, ids)?].concat(),
                _ => return Err(ApiError::field(path, "expected a text or token ids")),
            };
            // The last token of the prompt may be longer with its continuation.
            let from = prompt.len().min(tokens.len().saturating_sub(1)).max(1);
            if tokens.len() <= from {
                return Err(ApiError::field(path, "is empty"));
            }
            let checked = lease.check_length(tokens.len());
            checked.map_err(|error| field.prompt_error(at, error))?;
            let logprobs = session.score(&tokens, from, &mut |_, _| {});
            let logprobs = logprobs.map_err(|error| ApiError::in_field(&path, error))?;
            slot.next();
            Ok(Score {
                tokens: tokens[from..].to_vec(),
                sum: logprobs.iter().map(|value| f64::from(*value)).sum(),
                logprobs: logprobs.into_iter().map(|x| logprob(x).into()).collect(),
            })
        });
        let scores = results.collect::<ApiResult<_>>()?;
        let model = &lease.name;
        Ok(json_response(&Scores { model, scores }))
    })
    .await
}
