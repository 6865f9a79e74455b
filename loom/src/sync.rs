//! Loom's locks with the interface of parking_lot.

pub(super) use loom::sync::atomic::{AtomicU8, Ordering};
use loom::sync::{self, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Mutex<T>(sync::Mutex<T>);

pub(super) struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
    inner: Option<MutexGuard<'a, T>>,
}

#[derive(Debug)]
pub(super) struct Condvar(sync::Condvar);

/// Result of a wait with a timeout.
pub(super) struct TimedOut(bool);

impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(super) fn lock(&self) -> Guard<'_, T> {
        let inner = self.0.lock().expect("not poisoned");
        Guard {
            mutex: self,
            inner: Some(inner),
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("locked")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("locked")
    }
}

impl Condvar {
    pub(super) fn new() -> Self {
        Self(sync::Condvar::new())
    }

    pub(super) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(super) fn wait<T>(&self, guard: &mut Guard<'_, T>) {
        let inner = guard.inner.take().expect("locked");
        guard.inner = Some(self.0.wait(inner).expect("not poisoned"));
    }

    /// Unlocks, yields and times out: loom has no time, and its own timed wait never times out.
    pub(super) fn wait_for<T>(&self, guard: &mut Guard<'_, T>, _: Duration) -> TimedOut {
        drop(guard.inner.take());
        loom::thread::yield_now();
        guard.inner = guard.mutex.lock().inner;
        TimedOut(true)
    }
}

impl TimedOut {
    pub(super) fn timed_out(&self) -> bool {
        self.0
    }
}
