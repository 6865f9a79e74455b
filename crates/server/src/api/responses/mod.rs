//! `/v1/responses`, OpenAI's Responses API.

mod answer;
mod items;
mod request;
mod stream;
mod tools;

#[cfg(test)]
mod tests;

use super::common::{json_response, parse_with, with_seed};
use super::generation::{self, Settings, Started};
use crate::app::{App, unix_seconds};
use crate::engine::collect::fold;
use crate::engine::conversation::ResponseFormat;
use crate::engine::extra_fields::ExtraFields;
use crate::http::error::{ApiError, ApiResult};
use crate::http::gate::RequestContext;
use crate::http::sse;
use axum::body::{Body, Bytes};
use axum::http::{Response, StatusCode, Uri};
use request::ParsedRequest;
pub(super) use request::ResponsesFields;
use serde_json::json;
use std::sync::Arc;
use stream::{Extras, Storage, Writer};

pub(super) use items::called_name;

/// Answers a request.
pub(crate) async fn create(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let parse = {
        let (app, memory) = (Arc::clone(&app), Arc::clone(&context.memory));
        move |request| {
            let store = &app.responses;
            let parsed = ResponsesFields::parse(&request, store, &memory, app.limits.tools)?;
            Ok((request, parsed))
        }
    };
    let (request, parsed) = parse_with(bytes, parse).await?;
    let ParsedRequest {
        fields,
        chat,
        tools,
        items,
    } = parsed;
    let fields = Arc::new(fields);
    let extra = ExtraFields::parse(&request)?;
    let settings = Settings {
        choices: fields.limit()?.choices(1),
        extras: extra.extras()?,
        returns_prompt: false,
    };
    let build = {
        let fields = Arc::clone(&fields);
        move |model: &_| Ok((chat, fields.options(&request, model)?))
    };
    let name = fields.model.as_deref();
    let started = generation::start(&app, &context, name, settings, build).await;
    let Started {
        model,
        options,
        run,
        ..
    } = started.map_err(|error| error.prompt_field("input"))?;
    let response = answer::response(&fields, &options.sampling, &model.name, unix_seconds());
    let mut writer = Writer::new(response, tools, Arc::clone(&context.record));
    writer.extras = Extras {
        logprobs: options.logprobs.map(|_| model),
        has_encrypted_reasoning: fields.includes("reasoning.encrypted_content"),
        timed: extra.timed_chunks(),
    };
    if fields.store.unwrap_or(true) {
        writer.storage = Some(Storage {
            store: Arc::clone(&app.responses),
            items,
            _memory: context.memory,
        });
    }
    let response = match fields.stream.unwrap_or(false) {
        true => sse::response(run, writer),
        false => json_response(&fold(run, writer).await?.response),
    };
    Ok(with_seed(response, &options))
}

/// Returns the number of prompt tokens of a request.
pub(crate) async fn count(
    app: Arc<App>,
    context: RequestContext,
    bytes: Bytes,
) -> ApiResult<Response<Body>> {
    let parse = {
        let (app, memory) = (Arc::clone(&app), Arc::clone(&context.memory));
        move |request| {
            let store = &app.responses;
            ResponsesFields::parse(&request, store, &memory, app.limits.tools)
        }
    };
    let parsed = parse_with(bytes, parse).await?;
    let mut chat = parsed.chat;
    // The format is not part of the prompt.
    chat.response = ResponseFormat::Text;
    let build = move |_: &_| Ok((chat, Default::default()));
    let name = parsed.fields.model.as_deref();
    let tokens = generation::count(&app, &context, name, build).await;
    Ok(json_response(&json!({
        "object": "response.input_tokens",
        "input_tokens": tokens.map_err(|error| error.prompt_field("input"))?,
    })))
}

/// Returns a stored response.
pub(crate) async fn retrieve(
    app: Arc<App>,
    _: RequestContext,
    uri: Uri,
) -> ApiResult<Response<Body>> {
    let id = id(&uri);
    match app.responses.response(id) {
        Some(response) => Ok(json_response(&*response)),
        None => Err(not_stored(id)),
    }
}

/// Removes a stored response.
pub(crate) async fn remove(
    app: Arc<App>,
    _: RequestContext,
    uri: Uri,
) -> ApiResult<Response<Body>> {
    let id = id(&uri);
    match app.responses.remove(id) {
        true => {
            let deleted = json!({ "id": id, "object": "response", "deleted": true });
            Ok(json_response(&deleted))
        }
        false => Err(not_stored(id)),
    }
}

/// Answers that conversations cannot be compacted, with the status that clients expect.
pub(crate) async fn compact(_: Arc<App>, _: RequestContext, _: Bytes) -> ApiResult<Response<Body>> {
    let message = "/v1/responses/compact is not supported";
    Err(ApiError::new(StatusCode::NOT_FOUND, message))
}

/// Returns the identifier at the end of a path.
fn id(uri: &Uri) -> &str {
    let id = uri.path().rsplit_once('/');
    id.map_or("", |(_, id)| id)
}

fn not_stored(id: &str) -> ApiError {
    let message = format!("the response {id:?} is not stored");
    ApiError::new(StatusCode::NOT_FOUND, message)
}
