//! What stops a session from any thread: the one thing that the scheduler reads without a lock.

use super::sync::{AtomicU8, Ordering};
use std::sync::Arc;

/// Stops what a session does, from any thread.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<AtomicU8>);

/// Nobody asked to stop.
const GO_ON: u8 = 0;
/// Someone asked; whoever heeds it forgets it.
const CANCELLED: u8 = 1;
/// The session is going away: nothing forgets it.
const CLOSED: u8 = 2;

impl Cancel {
    /// Nobody has asked yet.
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicU8::new(GO_ON)))
    }

    /// Asks the session to stop at the next token or chunk. A session at rest stops at the first
    /// of what it does next, unless it is told to forget it.
    pub fn cancel(&self) {
        self.0.fetch_max(CANCELLED, Ordering::Relaxed);
    }

    /// Asks the session to stop for good.
    pub fn close(&self) {
        self.0.fetch_max(CLOSED, Ordering::Relaxed);
    }

    /// Whether it was asked to stop for good.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CLOSED
    }

    /// Whether someone asked to stop, and nobody has heeded it.
    pub(super) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != GO_ON
    }

    /// Whether someone asked to stop; who is told heeds it.
    pub(super) fn heed(&self) -> bool {
        let heeded =
            self.0
                .compare_exchange(CANCELLED, GO_ON, Ordering::Relaxed, Ordering::Relaxed);
        heeded.is_ok() || self.0.load(Ordering::Relaxed) == CLOSED
    }
}
