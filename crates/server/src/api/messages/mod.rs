//! `/v1/messages`, Anthropic's Messages API.

mod conversation;
mod request;
mod stream;

#[cfg(test)]
mod tests;

use super::common::{json_response, parse_with, with_seed};
use super::format::FormatFields;
use super::generation::{self, Settings, Started};
use crate::app::App;
use crate::engine::collect::fold;
use crate::engine::conversation::ResponseFormat;
use crate::engine::extra_fields::ExtraFields;
use crate::http::body::fields;
use crate::http::error::ApiResult;
use crate::http::gate::RequestContext;
use crate::http::sse;
use axum::body::{Body, Bytes};
use axum::http::Response;
pub(super) use request::MessagesFields;
use serde_json::json;
use std::sync::Arc;
use stream::{ThinkingDisplay, Writer};

/// Answers a request.
pub(crate) async fn create(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let tools_max = app.limits.tools;
    let (request, chat, parsed) = parse_with(bytes, move |request| {
        let parsed: MessagesFields = fields(&request)?;
        let mut chat = parsed.chat(tools_max)?;
        chat.response = FormatFields::combined(&request, chat.response)?;
        Ok((request, chat, parsed))
    })
    .await?;
    let (name, is_stream) = (parsed.model.clone(), parsed.stream.unwrap_or(false));
    let display = match parsed.omits_thinking() {
        true => ThinkingDisplay::Omitted,
        false => ThinkingDisplay::Full,
    };
    let settings = Settings {
        choices: MessagesFields::limit(&request)?.choices(1),
        extras: ExtraFields::parse(&request)?.extras()?,
        returns_prompt: false,
    };
    let build = move |model: &_| Ok((chat, parsed.options(&request, model)?));
    let started = generation::start(&app, &context, name.as_deref(), settings, build).await;
    context.memory.release();
    let Started {
        model,
        options,
        prompt_tokens,
        run,
        ..
    } = started.map_err(|error| error.prompt_field("messages"))?;
    let writer = Writer::new(context, display, &model.name, prompt_tokens);
    let response = match is_stream {
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
    let tools_max = app.limits.tools;
    let (chat, name) = parse_with(bytes, move |request| {
        let parsed: MessagesFields = fields(&request)?;
        let mut chat = parsed.chat(tools_max)?;
        // The format is not part of the prompt.
        chat.response = ResponseFormat::Text;
        Ok((chat, parsed.model))
    })
    .await?;
    let build = move |_: &_| Ok((chat, Default::default()));
    let tokens = generation::count(&app, &context, name.as_deref(), build).await;
    let tokens = tokens.map_err(|error| error.prompt_field("messages"))?;
    Ok(json_response(&json!({ "input_tokens": tokens })))
}
