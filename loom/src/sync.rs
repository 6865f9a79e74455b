//! Loom's locks with the interface of parking_lot's.

pub(super) use loom::sync::atomic::{AtomicU8, Ordering};
use loom::sync::{self, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Mutex<T>(sync::Mutex<T>);

pub(super) struct Guard<'a, T> {
    of: &'a Mutex<T>,
    held: Option<MutexGuard<'a, T>>,
}

#[derive(Debug)]
pub(super) struct Condvar(sync::Condvar);

/// Whether a wait ended by itself.
pub(super) struct TimedOut(bool);

impl<T> Mutex<T> {
    pub(super) fn new(inside: T) -> Self {
        Self(sync::Mutex::new(inside))
    }

    pub(super) fn lock(&self) -> Guard<'_, T> {
        let held = self.0.lock().expect("nobody panics with it");
        Guard {
            of: self,
            held: Some(held),
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("it is held")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("it is held")
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
        let held = guard.held.take().expect("it is held");
        guard.held = Some(self.0.wait(held).expect("nobody panics with it"));
    }

    /// Loom has no time, and its own wait with a timeout waits for ever: others run, or do not, and it is over.
    pub(super) fn wait_for<T>(&self, guard: &mut Guard<'_, T>, _: Duration) -> TimedOut {
        drop(guard.held.take());
        loom::thread::yield_now();
        guard.held = guard.of.lock().held;
        TimedOut(true)
    }
}

impl TimedOut {
    pub(super) fn timed_out(&self) -> bool {
        self.0
    }
}
