//! What rings where one of several mails has something new: one thread waits for all of them.

use super::sync::{Condvar, Mutex};

/// A count of rings, and who waits for the next.
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

    /// Says that something is new, once it can be had.
    pub(super) fn notify(&self) {
        *self.generation.lock() += 1;
        self.notified.notify_one();
    }

    /// How often it rang: read before one looks for what is new.
    pub(super) fn generation(&self) -> u64 {
        *self.generation.lock()
    }

    /// Waits until it rang more often than `rings`.
    pub(super) fn wait(&self, generation: u64) {
        let mut now = self.generation.lock();
        while *now == generation {
            self.notified.wait(&mut now);
        }
    }
}
