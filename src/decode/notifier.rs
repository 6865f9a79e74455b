//! What rings where one of several mails has something new: one thread waits for all of them.

use super::sync::{Condvar, Mutex};

/// A count of rings, and who waits for the next.
#[derive(Debug)]
pub(super) struct Notifier {
    rings: Mutex<u64>,
    rang: Condvar,
}

impl Notifier {
    pub(super) fn new() -> Self {
        Self {
            rings: Mutex::new(0),
            rang: Condvar::new(),
        }
    }

    /// Says that something is new, once it can be had.
    pub(super) fn ring(&self) {
        *self.rings.lock() += 1;
        self.rang.notify_one();
    }

    /// How often it rang: read before one looks for what is new.
    pub(super) fn rings(&self) -> u64 {
        *self.rings.lock()
    }

    /// Waits until it rang more often than `rings`.
    pub(super) fn wait(&self, rings: u64) {
        let mut now = self.rings.lock();
        while *now == rings {
            self.rang.wait(&mut now);
        }
    }
}
