//! Exclusive access to an object, one call at a time, without waiting.

use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use tabla::Result;
use tabla::error::bail;

/// Object that one call at a time accesses. A second call is an error and does not wait.
pub(super) struct Exclusive<T> {
    inner: Mutex<T>,
    /// Thread of the current call, to distinguish a call from its callback from one of another
    /// thread.
    owner: Mutex<Option<ThreadId>>,
    poisoned: AtomicBool,
}

impl<T> Exclusive<T> {
    pub(super) fn new(inner: T) -> Self {
        Self {
            inner: Mutex::new(inner),
            owner: Mutex::new(None),
            poisoned: AtomicBool::new(false),
        }
    }

    /// Runs a call on the object. `name` is the type of the object in messages.
    ///
    /// # Errors
    ///
    /// `Busy`, `Reentrant`, `Poisoned` after a panic, and errors of `call`.
    pub(super) fn enter<R>(&self, name: &str, call: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let me = Some(std::thread::current().id());
        let Some(mut inner) = self.inner.try_lock() else {
            if *self.owner.lock() == me {
                bail!(Reentrant, "the {name} was called from its own callback");
            }
            bail!(Busy, "the {name} is in use by another call");
        };
        // The flag is set before the lock is released.
        if self.poisoned.load(Ordering::Acquire) {
            bail!(
                Poisoned,
                "a call on this {name} panicked: create a new {name}"
            );
        }
        *self.owner.lock() = me;
        let out = catch_unwind(AssertUnwindSafe(|| call(&mut inner)));
        *self.owner.lock() = None;
        out.unwrap_or_else(|panic| {
            self.poisoned.store(true, Ordering::Release);
            resume_unwind(panic)
        })
    }
}
