//! One call at a time: what a handle has that a call has to itself.

use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use tabla::error::{Result, bail};

/// What one call at a time has to itself. A second one is an error, not a wait.
pub(super) struct Turn<T> {
    inner: Mutex<T>,
    /// Who is inside a call, so that a callback's call is told from another thread's.
    inside: Mutex<Option<ThreadId>>,
    poisoned: AtomicBool,
}

impl<T> Turn<T> {
    pub(super) fn new(inner: T) -> Self {
        Self {
            inner: Mutex::new(inner),
            inside: Mutex::new(None),
            poisoned: AtomicBool::new(false),
        }
    }

    /// Runs a call on it, which messages say the `name` of.
    ///
    /// # Errors
    ///
    /// `Busy`, `Reentrant`, `Poisoned` where a call has panicked; as of `call`.
    pub(super) fn enter<R>(&self, name: &str, call: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let me = Some(std::thread::current().id());
        let Some(mut inner) = self.inner.try_lock() else {
            if *self.inside.lock() == me {
                bail!(Reentrant, "a callback calls the {name} that is calling it");
            }
            bail!(Busy, "the {name} is in another call");
        };
        // It is set before the lock is given back.
        if self.poisoned.load(Ordering::Acquire) {
            bail!(
                Poisoned,
                "a call on this {name} panicked: free it and make another"
            );
        }
        *self.inside.lock() = me;
        let out = catch_unwind(AssertUnwindSafe(|| call(&mut inner)));
        *self.inside.lock() = None;
        out.unwrap_or_else(|panic| {
            self.poisoned.store(true, Ordering::Release);
            resume_unwind(panic)
        })
    }
}
