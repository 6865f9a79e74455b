//! Cancellation of a session from any thread. The scheduler reads it without a lock.

use super::sync::{AtomicU8, Ordering};
use std::sync::Arc;

/// Handle that cancels a session from any thread.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<AtomicU8>);

/// No cancellation is pending.
const NONE: u8 = 0;
/// A cancellation is pending; handling it clears it.
const CANCELLED: u8 = 1;
/// The session is closed: the state is permanent.
const CLOSED: u8 = 2;

impl Cancel {
    /// Creates a handle without a pending cancellation.
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicU8::new(NONE)))
    }

    /// Cancels the session at the next token or chunk. If the session is idle, its next operation
    /// is cancelled, unless the cancellation is cleared before.
    pub fn cancel(&self) {
        self.0.fetch_max(CANCELLED, Ordering::Relaxed);
    }

    /// Cancels all current and future operations of the session.
    pub fn close(&self) {
        self.0.fetch_max(CLOSED, Ordering::Relaxed);
    }

    /// Returns whether the session was closed.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CLOSED
    }

    /// Returns whether a cancellation is pending.
    pub(super) fn is_pending(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NONE
    }

    /// Returns whether a cancellation was pending, and clears it unless the session is closed.
    pub(super) fn take_pending(&self) -> bool {
        let taken = self
            .0
            .compare_exchange(CANCELLED, NONE, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok() || self.0.load(Ordering::Relaxed) == CLOSED
    }
}
