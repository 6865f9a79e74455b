//! Resource limits of one rendering: memory, steps and time.
//!
//! Every operation charges the memory that it takes before it takes it. Memory is never given back
//! to the budget, so the limit also bounds the sum of all values of a rendering.

use super::failure::{Outcome, too_large};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Base limit of allocated bytes, regardless of the conversation.
const BYTES_BASE: usize = 16 << 20;
/// Additional bytes for each byte of the conversation: a message passes through a dozen filters
/// and concatenations, and JSON escapes take up to six bytes per byte.
const BYTES_PER_BYTE: usize = 256;
/// Additional bytes for each value of the conversation, for its items and its part of a list.
const BYTES_PER_VALUE: usize = 512;
/// Base limit of steps, and additional ones for each value of the conversation.
const STEPS_BASE: u64 = 500_000;
const STEPS_PER_VALUE: u64 = 5_000;
/// Bytes or items that a function processes in one step.
const WORK_PER_STEP: usize = 64;
/// Number of steps between two readings of the clock.
const STEPS_PER_CHECK: u64 = 1024;
/// Time limit. A normal template takes milliseconds.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Size of a conversation; the limits grow with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConversationSize {
    pub(super) bytes: usize,
    pub(super) values: usize,
}

/// Limits and usage of a rendering.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: usize,
    used: Cell<usize>,
    steps_left: Cell<u64>,
    /// Number of steps left at which the clock is read.
    next_check: Cell<u64>,
    end: Instant,
}

impl Budget {
    pub(super) fn new(size: ConversationSize) -> Self {
        let values = u64::try_from(size.values).unwrap_or(u64::MAX);
        let steps = STEPS_BASE.saturating_add(values.saturating_mul(STEPS_PER_VALUE));
        Self {
            bytes: BYTES_BASE
                .saturating_add(size.bytes.saturating_mul(BYTES_PER_BYTE))
                .saturating_add(size.values.saturating_mul(BYTES_PER_VALUE)),
            used: Cell::new(0),
            steps_left: Cell::new(steps),
            next_check: Cell::new(steps - STEPS_PER_CHECK),
            end: Instant::now() + TIME_MAX,
        }
    }

    /// Charges `bytes` of memory, and the steps that writing them takes.
    pub(super) fn charge(&self, bytes: usize) -> Outcome<()> {
        let used = self.used.get().saturating_add(bytes);
        if used > self.bytes {
            return too_large(format_args!(
                "rendering takes more than {} bytes of memory",
                self.bytes
            ));
        }
        self.used.set(used);
        if bytes < WORK_PER_STEP {
            return Ok(());
        }
        self.work(bytes)
    }

    /// Charges the steps of a function that processes `size` bytes or items, at least one.
    pub(super) fn work(&self, size: usize) -> Outcome<()> {
        let steps = u64::try_from(1 + size / WORK_PER_STEP).unwrap_or(u64::MAX);
        let Some(left) = self.steps_left.get().checked_sub(steps) else {
            return too_large("rendering takes too many steps");
        };
        self.steps_left.set(left);
        if left < self.next_check.get() {
            self.next_check.set(left.saturating_sub(STEPS_PER_CHECK));
            if Instant::now() > self.end {
                let seconds = TIME_MAX.as_secs();
                return too_large(format_args!("rendering takes more than {seconds} s"));
            }
        }
        Ok(())
    }
}
