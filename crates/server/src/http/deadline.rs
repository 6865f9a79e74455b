//! Deadline of a request.

use super::error::{ApiError, ApiResult};
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Duration that stands for no limit.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// Deadline of a request. Clones are of the same request.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    time: Duration,
    /// Whether a generation observes the deadline: its answer ends with the next token.
    is_observed: Arc<AtomicBool>,
}

impl Deadline {
    /// Creates the deadline of a request that begins now.
    pub(crate) fn new(time: Duration) -> Self {
        let time = time.min(FOREVER);
        Self {
            at: Instant::now() + time,
            time,
            is_observed: Arc::default(),
        }
    }

    /// Waits until the deadline.
    pub(crate) async fn passed(&self) {
        tokio::time::sleep_until(self.at.into()).await;
    }

    pub(crate) fn has_passed(&self) -> bool {
        Instant::now() >= self.at
    }

    /// The caller ends the work at the deadline by itself from now on.
    pub(crate) fn observe(&self) {
        self.is_observed.store(true, Ordering::Relaxed);
    }

    /// Returns the error of a request that takes longer.
    pub(crate) fn error(&self) -> ApiError {
        let seconds = self.time.as_secs_f32();
        let message = format!("the request exceeds the limit of {seconds} seconds (--timeout)");
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, message)
    }

    /// Waits for the result of `work`, which is dropped at the deadline, unless it observes the deadline
    /// itself.
    pub(crate) async fn limit<T>(&self, work: impl Future<Output = ApiResult<T>>) -> ApiResult<T> {
        if self.has_passed() {
            return Err(self.error());
        }
        tokio::pin!(work);
        tokio::select! {
            biased;
            result = &mut work => return result,
            () = self.passed() => {}
        }
        match self.is_observed.load(Ordering::Relaxed) {
            true => work.await,
            false => Err(self.error()),
        }
    }
}
