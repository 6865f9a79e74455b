//! Condition variable shared by several output queues, so that one thread can wait for all of them.

use crate::sync::{Condvar, Mutex};

/// Counter of notifications and its condition variable.
#[derive(Debug)]
pub(super) struct Notifier {
    generation: Mutex<u64>,
    notified: Condvar,
}

impl Notifier {
    pub(super) fn new() -> Self {
        Self {
            generation: Mutex::new(0),
            notified: Condvar::new(),
        }
    }

    /// Wakes the waiting thread. Called after the new output is available.
    pub(super) fn notify(&self) {
        *self.generation.lock() += 1;
        self.notified.notify_one();
    }

    /// Returns the number of notifications. Read it before polling, then pass it to
    /// [`Notifier::wait`].
    pub(super) fn generation(&self) -> u64 {
        *self.generation.lock()
    }

    /// Waits until there are more notifications than `generation`.
    pub(super) fn wait(&self, generation: u64) {
        let mut now = self.generation.lock();
        while *now == generation {
            self.notified.wait(&mut now);
        }
    }
}
