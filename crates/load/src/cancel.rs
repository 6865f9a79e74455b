//! Cancellation from any thread. The scheduler reads it without a lock.

use crate::sync::{AtomicU8, Ordering};
use std::sync::Arc;

/// Handle that cancels a session, or loading, from any thread. Clones share the cancellation.
///
/// A cancelled generation ends without an error, with `Finish::Cancelled`.
/// All other operations return an error of kind [`Cancelled`](crate::error::ErrorKind::Cancelled). Either
/// clears the cancellation, so that the session can be used again.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<AtomicU8>);

/// No cancellation is pending.
const NONE: u8 = 0;
/// A cancellation is pending; handling it clears it.
const CANCELLED: u8 = 1;
/// Everything is cancelled permanently.
const CLOSED: u8 = 2;

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

impl Cancel {
    /// Creates a handle without a pending cancellation, for
    /// [`LoadOptions::cancel`](crate::load::LoadOptions::cancel).
    /// `Session::canceller` returns the handle of a session.
    pub fn new() -> Self {
        Self(Arc::new(AtomicU8::new(NONE)))
    }

    /// Cancels a session at the next token or chunk, or loading before the next stage. If the
    /// session is idle, its next operation is cancelled, unless the cancellation is cleared before.
    pub fn cancel(&self) {
        self.0.fetch_max(CANCELLED, Ordering::Relaxed);
    }

    /// Cancels the current operation and all later ones. This cannot be undone.
    pub fn close(&self) {
        self.0.fetch_max(CLOSED, Ordering::Relaxed);
    }

    /// Returns whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CLOSED
    }

    /// Returns whether a cancellation is pending, or the handle is closed.
    pub fn is_pending(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NONE
    }

    /// Returns whether a cancellation was pending, and clears it unless the handle is closed.
    #[doc(hidden)] // for decoding
    pub fn take_pending(&self) -> bool {
        let taken = self
            .0
            .compare_exchange(CANCELLED, NONE, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok() || self.0.load(Ordering::Relaxed) == CLOSED
    }
}
