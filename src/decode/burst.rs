//! The number of tokens of the next submission of an answer.

use std::time::Duration;

/// Someone watches: pieces come at least this often where the device is fast enough.
const PIECE_EVERY: Duration = Duration::from_millis(40);

/// How many tokens the next submission picks.
#[derive(Clone, Debug)]
pub(super) struct Burst {
    next: u32,
    max: u32,
    fixed: bool,
}

impl Burst {
    pub(super) fn new(wanted: u32, max: u32) -> Self {
        match wanted {
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

    /// Tokens of the next submission.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Doubles while the pieces still come often enough, halves when they do not.
    pub(super) fn adapt(&mut self, took: Duration, times: u32) {
        if self.fixed {
            return;
        }
        let doubled = took * 2 * self.next / times.max(1);
        if doubled <= PIECE_EVERY {
            self.next = (self.next * 2).min(self.max);
        } else if took > PIECE_EVERY {
            self.next = (self.next / 2).max(1);
        }
    }
}
