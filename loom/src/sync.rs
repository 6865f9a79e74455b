//! Locks of loom with the interface of parking_lot.

pub(super) use loom::sync::atomic::{AtomicU8, Ordering};
use loom::sync::{self, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Mutex<T>(sync::Mutex<T>);

pub(super) struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
    held: Option<MutexGuard<'a, T>>,
}

#[derive(Debug)]
pub(super) struct Condvar(sync::Condvar);

/// Whether a wait timed out.
pub(super) struct TimedOut(bool);

impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(super) fn lock(&self) -> Guard<'_, T> {
        let held = self.0.lock().expect("lock is not poisoned");
        Guard {
            mutex: self,
            held: Some(held),
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("lock is held")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("lock is held")
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
        let held = guard.held.take().expect("lock is held");
        guard.held = Some(self.0.wait(held).expect("lock is not poisoned"));
    }

    /// Loom has no time, and its own wait with a timeout waits forever. Other threads may run, then the
    /// wait times out.
    pub(super) fn wait_for<T>(&self, guard: &mut Guard<'_, T>, _: Duration) -> TimedOut {
        drop(guard.held.take());
        loom::thread::yield_now();
        guard.held = guard.mutex.lock().held;
        TimedOut(true)
    }
}

impl TimedOut {
    pub(super) fn timed_out(&self) -> bool {
        self.0
    }
}
