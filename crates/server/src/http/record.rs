//! The log record of a request, which is complete when the last byte of the answer was written.

use super::deadlines::Serving;
use super::error::ApiError;
use crate::config::{EventSink, RequestRecord, ServerEvent};
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::request::Parts;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Record of a running request.
pub(crate) struct Record {
    started: Instant,
    data: Mutex<RequestRecord>,
    events: EventSink,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record").finish_non_exhaustive()
    }
}

impl Record {
    /// Creates the record of a request that begins now.
    pub(crate) fn new(parts: &Parts, events: EventSink) -> Self {
        Self {
            started: Instant::now(),
            data: Mutex::new(RequestRecord {
                id: String::new(),
                method: parts.method.to_string(),
                path: parts.uri.path().to_string(),
                model: String::new(),
                status: 0,
                prompt_tokens: 0,
                cached_tokens: 0,
                generated_tokens: 0,
                first_token: None,
                took: Duration::ZERO,
                error: None,
            }),
            events,
        }
    }

    /// Changes the record.
    pub(crate) fn update(&self, change: impl FnOnce(&mut RequestRecord)) {
        change(&mut self.data.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn set_id(&self, id: &str) {
        self.update(|record| record.id = id.to_string());
    }

    pub(crate) fn set_model(&self, model: &str) {
        self.update(|record| record.model = model.to_string());
    }

    pub(crate) fn set_error(&self, error: &str) {
        self.update(|record| record.error = Some(error.to_string()));
    }

    /// Records an error in mid-stream.
    pub(crate) fn fail(&self, error: &ApiError) {
        self.set_error(&error.message);
    }

    /// Records a token. Returns the time since the request arrived if it is the first one.
    pub(crate) fn token(&self) -> Option<Duration> {
        let took = self.started.elapsed();
        let mut is_first = false;
        self.update(|record| {
            record.generated_tokens += 1;
            is_first = record.first_token.is_none();
            record.first_token.get_or_insert(took);
        });
        is_first.then_some(took)
    }

    /// Returns the time since the request arrived.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn report(&self, status: StatusCode, early_end: Option<&str>) {
        let took = self.started.elapsed();
        self.update(|record| {
            record.took = took;
            record.status = status.as_u16();
            // The body of an answer to HEAD is not read.
            if record.error.is_none() && record.method != "HEAD" {
                record.error = early_end.map(str::to_string);
            }
        });
        let data = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        (self.events)(ServerEvent::Request(data.clone()));
    }
}

/// Status in the log of a request whose client disconnected before the answer, as in nginx.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// What the log says about a client that is gone.
const DISCONNECTED: &str = "the client disconnected";

/// A request without an answer. Dropping it reports the record: the client disconnected.
pub(crate) struct Unanswered(Option<Arc<Record>>);

impl Unanswered {
    pub(crate) fn new(record: &Arc<Record>) -> Self {
        Self(Some(Arc::clone(record)))
    }

    /// The request has an answer, whose end reports the record.
    pub(crate) fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let (Some(record), Ok(status)) = (&self.0, StatusCode::from_u16(CLIENT_CLOSED_REQUEST)) {
            record.report(status, Some(DISCONNECTED));
        }
    }
}

/// A body whose end reports the record.
pub(crate) struct Recorded {
    body: Body,
    record: Arc<Record>,
    status: StatusCode,
    is_complete: bool,
    /// The connection; `None` for requests without one.
    serving: Option<Serving>,
}

impl Recorded {
    pub(crate) fn new(
        body: Body,
        record: Arc<Record>,
        status: StatusCode,
        serving: Option<Serving>,
    ) -> Self {
        let is_complete = body.is_end_stream();
        Self {
            body,
            record,
            status,
            is_complete,
            serving,
        }
    }
}

impl HttpBody for Recorded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.is_complete = true;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let early_end = (!self.is_complete).then_some(DISCONNECTED);
        self.record.report(self.status, early_end);
        if let Some(serving) = &self.serving {
            serving.end();
        }
    }
}
