//! Checks that every request passes before it is routed: path, host, origin, key and body.
//!
//! A request that is refused before its body was read is answered at once. The connection is closed then, and the
//! rest of the body discarded, so that clients that send the whole body first read the answer.

use super::connections::HEADER_BYTES;
use super::deadline::Deadline;
use super::deadlines::Serving;
use super::error::{ApiError, ApiResult, Dialect};
use super::ids;
use super::memory::BodyMemory;
use super::origin::OriginRules;
use super::read::{Content, read};
use super::record::{Record, Recorded, Unanswered};
use crate::app::App;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use axum::middleware::Next;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Identifier, API and limits of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub(crate) id: String,
    pub(crate) dialect: Dialect,
    pub(crate) record: Arc<Record>,
    /// Deadline of the answer; reading the body has its own.
    pub(crate) deadline: Deadline,
    /// Memory of the body.
    pub(crate) memory: Arc<BodyMemory>,
}

impl RequestContext {
    /// Converts the result of a handler to a response.
    pub(crate) fn respond(&self, result: ApiResult<Response<Body>>) -> Response<Body> {
        result.unwrap_or_else(|error| {
            self.record.set_error(&error.message);
            error.response(self.dialect, &self.id)
        })
    }
}

/// Passes a request to the router if it is allowed.
pub(crate) async fn pass(
    State(app): State<Arc<App>>,
    request: Request<Body>,
    next: Next,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let has_body = !body.is_end_stream();
    let serving = parts.extensions.remove::<Serving>();
    let context = RequestContext {
        id: ids::new_id("req_"),
        dialect: Dialect::of_request(parts.uri.path(), &parts.headers),
        record: Arc::new(Record::new(&parts, Arc::clone(&app.events))),
        deadline: Deadline::new(app.limits.request_time),
        memory: app.bodies.body(),
    };
    context.record.set_id(&context.id);
    let unanswered = Unanswered::new(&context.record);
    let origin = app.origins.check(&parts.method, &parts.uri, &parts.headers);
    let origin = origin.map(|origin| origin.cloned());
    let received = match &origin {
        Ok(origin) => receive(&app, &context, &parts, body, origin.as_ref()).await,
        Err(error) => Err(error.clone()),
    };
    let mut response = match received {
        Ok(Received::Request(bytes)) => {
            let context = RequestContext {
                deadline: Deadline::new(app.limits.request_time),
                ..context.clone()
            };
            parts.extensions.insert(context);
            next.run(Request::from_parts(parts, Body::from(bytes)))
                .await
        }
        Ok(Received::Preflight) => preflight(),
        Err(error) => {
            let mut response = context.respond(Err(error));
            if has_body {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
                serving.iter().for_each(Serving::leave_unread);
            }
            response
        }
    };
    let headers = response.headers_mut();
    if let Ok(Some(origin)) = &origin {
        OriginRules::allow(origin, headers);
    }
    if let Ok(id) = HeaderValue::from_str(&context.id) {
        headers.insert("x-request-id", id.clone());
        headers.insert("request-id", id);
    }
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    let status = response.status();
    unanswered.answered();
    response.map(|body| Body::new(Recorded::new(body, context.record, status, serving)))
}

/// A request that passed the checks.
enum Received {
    /// With its body.
    Request(Bytes),
    /// A browser asks whether a page may send the request.
    Preflight,
}

async fn receive(
    app: &App,
    context: &RequestContext,
    parts: &Parts,
    body: Body,
    origin: Option<&HeaderValue>,
) -> ApiResult<Received> {
    check_headers(&parts.headers)?;
    if parts.method == Method::OPTIONS {
        return Ok(Received::Preflight);
    }
    if !app.is_public(parts.uri.path()) {
        check_key(&app.api_keys, &parts.headers)?;
    }
    let bytes = read_body(app, context, parts, body, origin).await?;
    Ok(Received::Request(bytes))
}

fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    OriginRules::allow_preflight(response.headers_mut());
    response
}

async fn read_body(
    app: &App,
    context: &RequestContext,
    parts: &Parts,
    body: Body,
    origin: Option<&HeaderValue>,
) -> ApiResult<Bytes> {
    if matches!(parts.method, Method::GET | Method::HEAD | Method::DELETE) {
        return Ok(Bytes::new());
    }
    while let Err(e) = tabla::reserve::check() {
        if !app.responses.remove_oldest() {
            return Err(ApiError::from(e).retry_after(1));
        }
    }
    let is_audio = parts.uri.path().contains("/audio/");
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    // Browsers send other types without a preflight request.
    let is_json =
        content_type.is_some_and(|text| text.trim_start().starts_with("application/json"));
    if origin.is_some() && !is_json && !is_audio {
        let message = "web pages must send Content-Type: application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let (content, limit) = match is_audio {
        true => (Content::Form, app.limits.audio_bytes),
        false => (Content::Json, app.limits.body_bytes),
    };
    read(
        &parts.headers,
        body,
        content,
        limit,
        app.limits.body_time,
        &context.memory,
    )
    .await
}

/// Checks the length of the headers: the buffer of hyper is larger than its limit.
fn check_headers(headers: &HeaderMap) -> ApiResult<()> {
    let fields = headers.iter();
    let bytes: usize = fields
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if bytes <= HEADER_BYTES {
        return Ok(());
    }
    let message =
        format!("the headers have {bytes} bytes, which exceeds the limit of {HEADER_BYTES}");
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    Err(ApiError::new(status, message))
}

/// Checks the key. The time does not depend on how much of it is right.
fn check_key(keys: &[String], headers: &HeaderMap) -> ApiResult<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let bearer = headers.get(header::AUTHORIZATION);
    let bearer = bearer.and_then(|value| value.to_str().ok()?.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let bearer = bearer.map(|(_, key)| key.trim());
    let plain = headers.get("x-api-key").and_then(|key| key.to_str().ok());
    let given = [bearer, plain];
    let is_valid = given.into_iter().flatten().any(|given| {
        let same = |key: &String| bool::from(given.as_bytes().ct_eq(key.as_bytes()));
        keys.iter().fold(false, |valid, key| valid | same(key))
    });
    match is_valid {
        true => Ok(()),
        false => Err(ApiError {
            code: Some("invalid_api_key"),
            ..ApiError::new(
                StatusCode::UNAUTHORIZED,
                "the API key is missing or invalid",
            )
        }),
    }
}
