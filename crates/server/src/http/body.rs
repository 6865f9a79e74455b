//! Bodies of requests: read under one deadline, and parsed with errors that name the field.

use super::error::{ApiError, ApiResult};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
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

/// Parses a JSON body.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> ApiResult<T> {
    if str::from_utf8(body).is_err() {
        return Err(ApiError::invalid("the body is not valid UTF-8"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut deserializer);
    let value = parsed.map_err(|error| {
        let path = error.path().to_string();
        let cause = error.into_inner();
        let is_type = cause.is_data() && path != ".";
        match is_type {
            true => ApiError::field(path, without_position(&cause.to_string())),
            false => ApiError::invalid(format!("invalid JSON: {cause}")),
        }
    })?;
    deserializer
        .end()
        .map_err(|cause| ApiError::invalid(format!("invalid JSON: {cause}")))?;
    Ok(value)
}

/// Removes ` at line 1 column 10`: bodies are written by programs.
fn without_position(message: &str) -> &str {
    message
        .find(" at line ")
        .map_or(message, |at| &message[..at])
}
