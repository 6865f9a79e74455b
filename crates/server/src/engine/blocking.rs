//! Work on threads for blocking calls.

use crate::http::error::{ApiError, ApiResult};
use axum::http::StatusCode;
use tabla::Cancel;
use tokio::sync::oneshot;

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
    let (sender, result) = oneshot::channel();
    // The code of a task is compiled once for boxed work, and otherwise for every caller.
    let work: Box<dyn FnOnce() + Send> = Box::new(move || {
        // The receiver is gone if the request was dropped.
        let _ = sender.send(work());
    });
    tokio::task::spawn_blocking(work);
    result.await.unwrap_or_else(|_| Err(panicked()))
}
