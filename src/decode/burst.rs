//! Size of a burst: decode steps of the same sequences that are submitted to the device at once.

use std::time::Duration;

/// Target interval between pieces of text for interactive use.
const PIECE_EVERY: Duration = Duration::from_millis(40);

/// Adaptive or fixed burst size.
#[derive(Clone, Debug)]
pub(super) struct Burst {
    next: u32,
    max: u32,
    fixed: bool,
}

impl Burst {
    pub(super) fn new(steps: u32, max: u32) -> Self {
        match steps {
            0 => Self {
                next: 1,
                max,
                fixed: false,
            },
            n => Self {
                next: n.min(max),
                max,
                fixed: true,
            },
        }
    }

    /// Returns the number of steps of the next burst.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Doubles the burst size while a doubled burst stays within the target interval. Halves it
    /// when a burst exceeds the interval.
    pub(super) fn adapt(&mut self, took: Duration, steps: u32) {
        if self.fixed {
            return;
        }
        let doubled = took * 2 * self.next / steps.max(1);
        if doubled <= PIECE_EVERY {
            self.next = (self.next * 2).min(self.max);
        } else if took > PIECE_EVERY {
            self.next = (self.next / 2).max(1);
        }
    }
}
