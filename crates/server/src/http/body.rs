//! Bodies of requests: read under one deadline, and parsed with errors that name the field.

use super::error::{ApiError, ApiResult};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};
use std::time::Duration;

/// Assumed minimum speed of a client in bytes per second.
const BYTES_PER_SECOND: u64 = 64 << 10;

/// Reads a body of at most `limit` bytes. The deadline is `time`, and one second for each 64 KiB.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    time: Duration,
) -> ApiResult<Bytes> {
    let too_large = || {
        let message = format!("the body exceeds the limit of {limit} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        let message = "a compressed body is not supported";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let seconds = length.unwrap_or(limit as u64) / BYTES_PER_SECOND;
    let deadline = time + Duration::from_secs(seconds);
    let read = Limited::new(body, limit).collect();
    match tokio::time::timeout(deadline, read).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => Err(too_large()),
        Ok(Err(_)) => Err(ApiError::invalid("the body is incomplete")),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        )),
    }
}

/// Maximum length of a string in a message, in bytes. Longer strings may be text of a prompt, which the
/// log does not have.
const STRING_BYTES_MAX: usize = 20;

/// Parses a JSON body.
pub(crate) fn parse(body: &[u8]) -> ApiResult<Value> {
    if str::from_utf8(body).is_err() {
        return Err(ApiError::invalid("the body is not valid UTF-8"));
    }
    serde_json::from_slice(body)
        .map_err(|cause| ApiError::invalid(format!("invalid JSON: {cause}")))
}

/// Parses a group of fields of a request. Other fields are ignored.
pub(crate) fn fields<'v, T: Deserialize<'v>>(request: &'v Value) -> ApiResult<T> {
    if !request.is_object() {
        return Err(ApiError::invalid("the body must be a JSON object"));
    }
    serde_path_to_error::deserialize(request).map_err(|error| {
        let path = error.path().clone();
        let cause = error.into_inner().to_string();
        if let Some(name) = cause.strip_prefix("duplicate field `") {
            let name = name.trim_end_matches('`');
            return ApiError::field(name, "is given twice, under two names: send one of them");
        }
        let message = match cause.rsplit_once("expected ") {
            Some((_, expected)) => {
                let value = excerpt(value_at(request, &path));
                format!("expected {}, got {value}", json_type(expected))
            }
            None => cause,
        };
        ApiError::field(path.to_string(), message)
    })
}

/// Returns the name of a type in JSON for serde's name of a Rust type.
fn json_type(expected: &str) -> &str {
    match expected {
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        name if name.starts_with("struct ") => "an object",
        name => name,
    }
}

/// Returns the value at a path, or the last value on the way that exists.
fn value_at<'v>(request: &'v Value, path: &Path) -> &'v Value {
    path.iter().fold(request, |value, segment| {
        let inner = match segment {
            Segment::Seq { index } => value.get(*index),
            Segment::Map { key } => value.get(key),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        inner.unwrap_or(value)
    })
}

/// Returns a value for a message, without the content of lists, objects and long strings.
fn excerpt(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_string(),
        Value::Object(_) => "an object".to_string(),
        Value::String(text) if text.len() > STRING_BYTES_MAX => "a string".to_string(),
        value => value.to_string(),
    }
}
