//! Endpoints of llama.cpp and vLLM beside OpenAI's: tokens and metrics.

use super::common::{json_response, token_text};
use crate::engine::parameters::{Int, fields};
use crate::engine::run;
use crate::http::body;
use crate::http::error::{ApiError, ApiResult};
use crate::http::gate::RequestContext;
use crate::metrics::{ModelState, render};
use crate::server::App;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, Uri, header};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tabla::text::{DecodeOptions, EncodeOptions, SpecialTokens};
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
    /// Whether each token has its text.
    with_pieces: Option<bool>,
}

/// Converts text to token ids.
pub(crate) async fn tokenize(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let request: Value = body::parse(&bytes)?;
    let parsed: TokenizeFields = fields(&request)?;
    let Some(text) = parsed.content else {
        return Err(ApiError::field("content", "expected a string"));
    };
    let lease = app.registry.lease(parsed.model.as_deref()).await?;
    context.record.set_model(&lease.name);
    let parses_special = parsed.parse_special.unwrap_or(true);
    let options = EncodeOptions::default()
        .add_special(parsed.add_special.unwrap_or(false))
        .specials(match parses_special {
            true => SpecialTokens::Tokens,
            false => SpecialTokens::Text,
        });
    run::blocking(move || {
        let tokenizer = lease.model.tokenizer();
        let ids = tokenizer.encode(&text, options)?;
        let piece = |id: &u32| json!({ "id": id, "piece": token_text(tokenizer, *id) });
        let count = ids.len();
        let tokens: Value = match parsed.with_pieces.unwrap_or(false) {
            true => ids.iter().map(piece).collect::<Vec<_>>().into(),
            false => ids.into(),
        };
        let context = lease.model.facts().context;
        Ok(json_response(&json!({
            "tokens": tokens,
            "count": count,
            "max_model_len": context,
        })))
    })
    .await
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
    let request: Value = body::parse(&bytes)?;
    let parsed: DetokenizeFields = fields(&request)?;
    let Some(tokens) = parsed.tokens else {
        return Err(ApiError::field("tokens", "expected a list of token ids"));
    };
    let lease = app.registry.lease(parsed.model.as_deref()).await?;
    context.record.set_model(&lease.name);
    let max = lease.model.facts().vocab.saturating_sub(1);
    let ids = tokens.iter().map(|id| id.u32_in("tokens", 0, max));
    let ids: Vec<u32> = ids.collect::<ApiResult<_>>()?;
    let options = DecodeOptions::default().specials(SpecialTokens::Tokens);
    let text = lease.model.tokenizer().decode_lossy(&ids, options)?;
    Ok(json_response(&json!({ "content": text, "prompt": text })))
}

/// Returns the metrics in the text format of Prometheus.
pub(crate) async fn metrics(app: Arc<App>, _: RequestContext, _: Uri) -> ApiResult<Response<Body>> {
    let states = app.registry.entries().iter().map(|entry| {
        let loaded = entry.loaded();
        let admission = loaded.as_ref().map(|loaded| &loaded.admission);
        ModelState {
            name: &entry.config.name,
            metrics: &entry.metrics,
            is_loaded: loaded.is_some(),
            running: admission.map_or(0, |a| a.running()),
            waiting: admission.map_or(0, |a| a.waiting()),
            slots: admission.map_or(0, |a| a.slots()),
            token_bytes: loaded.as_ref().map_or(0, |l| l.model.facts().token_bytes),
        }
    });
    let text = render(&states.collect::<Vec<_>>());
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
