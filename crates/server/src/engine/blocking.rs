//! Work on threads for blocking calls.

use crate::http::error::{ApiError, ApiResult};
use axum::http::StatusCode;
use tabla::Cancel;

/// Cancels a session or a transcription when it is dropped: the request was dropped.
pub(crate) struct CancelOnDrop(pub(crate) Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Returns the result of a thread.
pub(crate) fn joined<T>(result: Result<ApiResult<T>, tokio::task::JoinError>) -> ApiResult<T> {
    result.unwrap_or_else(|_| Err(panicked()))
}

/// Returns the error of a panic, which is a bug.
pub(super) fn panicked() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
}

/// Runs `work` on a thread for blocking calls.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    joined(tokio::task::spawn_blocking(work).await)
}
