//! Server-sent events.

use super::error::ApiError;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use futures_util::stream;
use serde_json::Value;
use std::fmt::Write;
use std::time::Duration;
use tokio::time::timeout;

/// Duration without output after which a comment is sent, so that proxies keep the connection open.
const PING_TIME: Duration = Duration::from_secs(10);

/// Maximum number of bytes that are joined to one write.
const WRITE_BYTES: usize = 16 << 10;

/// Appends an event with data only.
pub(crate) fn data(out: &mut String, value: &Value) {
    // Writing to a string cannot fail.
    let _ = write!(out, "data: {value}\n\n");
}

/// Appends an event with a name.
pub(crate) fn named(out: &mut String, name: &str, value: &Value) {
    let _ = write!(out, "event: {name}\ndata: {value}\n\n");
}

/// Writer of the events of one API.
pub(crate) trait EventWriter: Send + 'static {
    /// Events of the generation.
    type Event: Send + 'static;

    /// Writes what is sent before the first event.
    fn begin(&mut self, out: &mut String);

    /// Writes an event. Returns whether the stream has ended.
    fn event(&mut self, event: Self::Event, out: &mut String) -> bool;

    /// Writes an error in mid-stream, which ends it.
    fn error(&mut self, error: &ApiError, out: &mut String);

    /// Writes a sign of life.
    fn ping(&mut self, out: &mut String) {
        out.push_str(": ping\n\n");
    }
}

/// Source of events. `next` waits, `try_next` does not; both return `None` at the end or if there is none.
pub(crate) trait EventSource: Send + 'static {
    /// Events of the generation.
    type Event: Send + 'static;

    /// Waits for the next event.
    fn next(&mut self) -> impl Future<Output = Option<Result<Self::Event, ApiError>>> + Send;

    /// Returns the next event if there is one.
    fn try_next(&mut self) -> Option<Result<Self::Event, ApiError>>;
}

/// Returns a response that streams the events of `source`. Dropping the response drops the source.
pub(crate) fn response<S, W>(source: S, writer: W) -> Response<Body>
where
    S: EventSource,
    W: EventWriter<Event = S::Event>,
{
    let state = State {
        source,
        writer,
        phase: Phase::Begin,
    };
    let body = stream::unfold(state, |mut state| async {
        let chunk = state.next_chunk().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), state))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct State<S, W> {
    source: S,
    writer: W,
    phase: Phase,
}

#[derive(PartialEq)]
enum Phase {
    Begin,
    Running,
    Ended,
}

impl<S: EventSource, W: EventWriter<Event = S::Event>> State<S, W> {
    /// Returns the next bytes; `None` at the end.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut out = String::new();
        if self.phase == Phase::Begin {
            self.phase = Phase::Running;
            self.writer.begin(&mut out);
        }
        // Some events write nothing.
        while self.phase == Phase::Running && out.is_empty() {
            match timeout(PING_TIME, self.source.next()).await {
                Ok(event) => self.write(event, &mut out),
                Err(_) => self.writer.ping(&mut out),
            }
        }
        if out.is_empty() {
            return None;
        }
        // Events that are ready are part of the same write.
        while self.phase == Phase::Running && out.len() < WRITE_BYTES {
            match self.source.try_next() {
                Some(event) => self.write(Some(event), &mut out),
                None => break,
            }
        }
        Some(Bytes::from(out))
    }

    fn write(&mut self, event: Option<Result<S::Event, ApiError>>, out: &mut String) {
        let has_ended = match event {
            Some(Ok(event)) => self.writer.event(event, out),
            Some(Err(error)) => {
                self.writer.error(&error, out);
                true
            }
            None => true,
        };
        if has_ended {
            self.phase = Phase::Ended;
        }
    }
}
