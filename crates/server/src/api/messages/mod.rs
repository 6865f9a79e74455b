//! `/v1/messages`, Anthropic's Messages API.

mod conversation;
mod request;
mod stream;

#[cfg(test)]
mod tests;

use super::common::{json_response, with_seed};
use super::format::FormatFields;
use super::generation::{self, Started};
use crate::app::App;
use crate::engine::collect::fold;
use crate::engine::conversation::ResponseFormat;
use crate::http::body::{self, fields};
use crate::http::error::ApiResult;
use crate::http::gate::RequestContext;
use crate::http::sse;
use axum::body::{Body, Bytes};
use axum::http::Response;
pub(super) use request::MessagesFields;
use serde_json::{Value, json};
use std::sync::Arc;
use stream::{ThinkingDisplay, Writer};

/// Answers a request.
pub(crate) async fn create(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let request: Value = body::parse(&bytes)?;
    let parsed: MessagesFields = fields(&request)?;
    let mut chat = parsed.chat(app.limits.tools)?;
    chat.response = FormatFields::combined(&request, chat.response)?;
    let build = {
        let parsed = parsed.clone();
        move |model: &_| Ok((chat, parsed.options(&request, model)?))
    };
    let started = generation::start(&app, &context, (parsed.model.as_deref(), 1), build).await;
    let Started {
        model,
        options,
        prompt_tokens,
        run,
    } = started.map_err(|error| error.prompt_field("messages"))?;
    let display = match parsed.omits_thinking() {
        true => ThinkingDisplay::Omitted,
        false => ThinkingDisplay::Full,
    };
    let writer = Writer::new(context, display, (&model.name, prompt_tokens));
    let response = match parsed.stream.unwrap_or(false) {
        true => sse::response(run, writer),
        false => json_response(&fold(run, writer).await?.message),
    };
    Ok(with_seed(response, &options))
}

/// Returns the number of prompt tokens of a request.
pub(crate) async fn count(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let request: Value = body::parse(&bytes)?;
    let parsed: MessagesFields = fields(&request)?;
    let mut chat = parsed.chat(app.limits.tools)?;
    // The format is not part of the prompt.
    chat.response = ResponseFormat::Text;
    let build = move |_: &_| Ok((chat, Default::default()));
    let tokens = generation::count(&app, &context, parsed.model.as_deref(), build).await;
    let tokens = tokens.map_err(|error| error.prompt_field("messages"))?;
    Ok(json_response(&json!({ "input_tokens": tokens })))
}
