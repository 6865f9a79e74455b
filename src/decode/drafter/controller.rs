//! Adapts the number of draft tokens, and pauses speculation while it is slower than single steps.

use std::time::Duration;

/// Number of draft tokens of the first pass.
const INITIAL_DRAFT: usize = 3;
/// Number of steps in the first pause after a slow pass. Each further pause doubles it.
const COOLDOWN: u32 = 8;
/// Maximum number of steps of a pause.
const COOLDOWN_MAX: u32 = 1024;
/// Maximum pause after an empty draft, in steps. Each empty draft doubles it.
const MISSES_MAX: u32 = 8;
/// Maximum pause after an empty draft for short steps. Drafting interrupts bursts, which costs some
/// microseconds.
const MISSES_TIME: Duration = Duration::from_millis(3);
/// Weight of the last measurement in the moving averages.
const WEIGHT: f64 = 0.25;

/// Compares passes with draft tokens to single steps.
#[derive(Debug)]
pub(super) struct SpeculationController {
    /// Maximum number of draft tokens.
    max: usize,
    /// Number of draft tokens of the next pass.
    draft_len: usize,
    /// Average duration of a step in seconds; `None` before the first step.
    step: Option<f64>,
    /// Average number of tokens and duration in seconds of a pass.
    passes: Option<(f64, f64)>,
    /// Remaining steps of the pause.
    cooldown: u32,
    next_cooldown: u32,
    misses: u32,
}

/// Exponential moving average.
fn mean(so_far: Option<f64>, next: f64) -> f64 {
    so_far.map_or(next, |so_far| so_far + WEIGHT * (next - so_far))
}

impl SpeculationController {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            draft_len: INITIAL_DRAFT.min(max),
            step: None,
            passes: None,
            // The duration of a step must be measured first.
            cooldown: 1,
            next_cooldown: COOLDOWN,
            misses: 0,
        }
    }

    /// Returns the number of draft tokens of the next pass.
    pub(super) fn draft_len(&self) -> usize {
        self.draft_len
    }

    /// Returns the number of steps without draft tokens that must precede the next draft.
    pub(super) fn cooldown(&self) -> u32 {
        self.cooldown
    }

    /// Records steps without draft tokens.
    pub(super) fn record_steps(&mut self, took: Duration, steps: u32) {
        self.cooldown = self.cooldown.saturating_sub(steps);
        self.step = Some(mean(
            self.step,
            took.as_secs_f64() / f64::from(steps.max(1)),
        ));
    }

    /// Records an empty draft.
    pub(super) fn record_miss(&mut self) {
        let misses = f64::from(self.misses);
        let short = |step| misses * step < MISSES_TIME.as_secs_f64();
        if self.misses < MISSES_MAX || self.step.is_some_and(short) {
            self.misses = (2 * self.misses).clamp(1, COOLDOWN_MAX);
        }
        self.cooldown = self.misses;
    }

    /// Records that the source of draft tokens is not ready.
    pub(super) fn postpone(&mut self) {
        self.cooldown = 1;
    }

    /// Records the result of a pass.
    pub(super) fn record_check(&mut self, drafted: usize, accepted: usize, took: Duration) {
        self.misses = 0;
        self.draft_len = if accepted == drafted {
            // Tables have a power of two of rows: the draft tokens and one more.
            (2 * self.draft_len + 1).min(self.max)
        } else if accepted < drafted / 2 {
            (self.draft_len / 2).max(1)
        } else {
            self.draft_len
        };
        let count = u32::try_from(accepted + 1).map_or(f64::MAX, f64::from);
        let (tokens, seconds) = self.passes.unzip();
        let tokens = mean(tokens, count);
        let seconds = mean(seconds, took.as_secs_f64());
        self.passes = Some((tokens, seconds));
        if self.step.is_some_and(|step| seconds > tokens * step) {
            self.cooldown = self.next_cooldown;
            self.next_cooldown = (2 * self.next_cooldown).min(COOLDOWN_MAX);
            // The averages do not apply to later text.
            self.passes = None;
            self.draft_len = INITIAL_DRAFT.min(self.max);
        } else {
            self.next_cooldown = COOLDOWN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);

    #[test]
    fn accepted_drafts_grow() {
        let mut controller = SpeculationController::new(31);
        assert_eq!((controller.cooldown(), controller.draft_len()), (1, 3));
        controller.record_steps(STEP, 1);
        let mut counts = Vec::new();
        for _ in 0..5 {
            assert_eq!(controller.cooldown(), 0);
            let drafted = controller.draft_len();
            counts.push(drafted);
            controller.record_check(drafted, drafted, 2 * STEP);
        }
        assert_eq!(counts, [3, 7, 15, 31, 31]);
        // Rejected drafts shrink while speculation is still faster.
        controller.record_check(31, 10, 2 * STEP);
        assert_eq!((controller.cooldown(), controller.draft_len()), (0, 15));
    }

    #[test]
    fn slow_speculation_pauses_longer_each_time() {
        let mut controller = SpeculationController::new(31);
        controller.record_steps(STEP, 1);
        let mut cooldowns = Vec::new();
        for _ in 0..9 {
            controller.record_check(3, 0, 2 * STEP);
            cooldowns.push(controller.cooldown());
            controller.record_steps(STEP * controller.cooldown(), controller.cooldown());
            assert_eq!((controller.cooldown(), controller.draft_len()), (0, 3));
        }
        assert_eq!(cooldowns, [8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        controller.record_check(3, 3, STEP);
        controller.record_check(7, 0, 20 * STEP);
        assert_eq!(controller.cooldown(), 8, "a fast pass resets the pause");
    }

    #[test]
    fn empty_drafts_reduce_draft_frequency() {
        let mut controller = SpeculationController::new(31);
        controller.record_steps(STEP, 1);
        for cooldown in [1, 2, 4, 8, 8] {
            controller.record_miss();
            assert_eq!(controller.cooldown(), cooldown);
            controller.record_steps(STEP * cooldown, cooldown);
        }
        controller.record_check(3, 3, STEP);
        controller.record_miss();
        assert_eq!(controller.cooldown(), 1);
    }

    #[test]
    fn short_steps_allow_longer_pauses() {
        for (step, longest) in [(400, 8), (200, 16), (100, 32), (1, COOLDOWN_MAX)] {
            let step = Duration::from_micros(step);
            let mut controller = SpeculationController::new(31);
            controller.record_steps(step, 1);
            for _ in 0..12 {
                controller.record_miss();
                controller.record_steps(step * controller.cooldown(), controller.cooldown());
            }
            controller.record_miss();
            assert_eq!(controller.cooldown(), longest, "steps of {step:?}");
        }
    }
}
