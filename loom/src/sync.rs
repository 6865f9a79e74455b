//! Loom's locks with the interface of parking_lot's.

pub(super) use loom::sync::atomic::{AtomicU8, Ordering};
use loom::sync::{self, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Mutex<T>(sync::Mutex<T>);

pub(super) struct Guard<'a, T>(Option<MutexGuard<'a, T>>);

#[derive(Debug)]
pub(super) struct Condvar(sync::Condvar);

/// Whether a wait ended by itself.
pub(super) struct TimedOut(bool);

impl<T> Mutex<T> {
    pub(super) fn new(inside: T) -> Self {
        Self(sync::Mutex::new(inside))
    }

    pub(super) fn lock(&self) -> Guard<'_, T> {
        Guard(Some(self.0.lock().expect("nobody panics with it")))
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is held")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is held")
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
        let held = guard.0.take().expect("it is held");
        guard.0 = Some(self.0.wait(held).expect("nobody panics with it"));
    }

    /// Loom has no time: others run, or do not, and it is over.
    pub(super) fn wait_for<T>(&self, guard: &mut Guard<'_, T>, _: Duration) -> TimedOut {
        let held = guard.0.take().expect("it is held");
        let waited = self.0.wait_timeout(held, Duration::ZERO);
        let (held, _) = waited.expect("nobody panics with it");
        guard.0 = Some(held);
        TimedOut(true)
    }
}

impl TimedOut {
    pub(super) fn timed_out(&self) -> bool {
        self.0
    }
}
