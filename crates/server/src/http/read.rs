//! Reads the bodies of requests: under one deadline, and within the limits of length and memory.

use super::error::{ApiError, ApiResult};
use super::memory::{BodyMemory, JsonScan};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use std::time::Duration;

/// Assumed minimum speed of a client in bytes per second.
const BYTES_PER_SECOND: u64 = 64 << 10;

/// Content of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Json,
    /// A form with a file.
    Form,
}

/// Reads a body of at most `limit` bytes. The deadline is `time`, and one second for each 64 KiB.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    content: Content,
    limit: usize,
    time: Duration,
    memory: &BodyMemory,
) -> ApiResult<Bytes> {
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        let message = "a compressed body is not supported";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    let seconds = length.unwrap_or(limit as u64) / BYTES_PER_SECOND;
    let deadline = time + Duration::from_secs(seconds);
    let read = read_frames(body, content, limit, memory);
    match tokio::time::timeout(deadline, read).await {
        Ok(result) => result,
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        )),
    }
}

async fn read_frames(
    mut body: Body,
    content: Content,
    limit: usize,
    memory: &BodyMemory,
) -> ApiResult<Bytes> {
    let mut bytes = Vec::new();
    let mut scan = JsonScan::default();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(ApiError::invalid("the body is incomplete"));
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        memory.grow(match content {
            Content::Json => data.len() + scan.push(&data)?,
            // The file is a copy of its part of the form.
            Content::Form => 2 * data.len(),
        })?;
        if bytes.try_reserve(data.len()).is_err() {
            let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "out of memory");
            return Err(error.retry_after(1));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.into())
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("the body exceeds the limit of {limit} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}
