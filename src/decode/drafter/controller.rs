//! How many guesses a pass has, and when there are none: as they have paid so far.

use std::time::Duration;

/// DraftStats of the first pass.
const INITIAL_DRAFT: usize = 3;
/// Steps without guesses behind the first pass that did not pay; as many more each time.
const COOLDOWN: u32 = 8;
/// Such steps at most.
const COOLDOWN_MAX: u32 = 1024;
/// Steps without guesses where none are known, at most: twice as many each time.
const MISSES_MAX: u32 = 8;
/// Where steps are short, so much time without guesses: to ask breaks a chain of steps, which
/// takes some microseconds.
const MISSES_TIME: Duration = Duration::from_millis(3);
/// What the last pass or step weighs against those in front of it.
const WEIGHT: f64 = 0.25;

/// What passes with guesses bring, against steps without.
#[derive(Debug)]
pub(super) struct SpeculationController {
    /// DraftStats at most.
    max: usize,
    /// DraftStats of the next pass.
    draft_len: usize,
    /// Seconds of a step; none where no step was seen.
    step: Option<f64>,
    /// Tokens and seconds of a pass, on average.
    passes: Option<(f64, f64)>,
    /// Steps to go until there are guesses again.
    cooldown: u32,
    next_cooldown: u32,
    misses: u32,
}

/// The mean of numbers, in which later ones weigh more.
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
            // The time of a step has to be known.
            cooldown: 1,
            next_cooldown: COOLDOWN,
            misses: 0,
        }
    }

    /// DraftStats that the next pass is to have.
    pub(super) fn draft_len(&self) -> usize {
        self.draft_len
    }

    /// Steps that are to go without guesses.
    pub(super) fn cooldown(&self) -> u32 {
        self.cooldown
    }

    /// Hears of steps without guesses.
    pub(super) fn record_steps(&mut self, took: Duration, steps: u32) {
        self.cooldown = self.cooldown.saturating_sub(steps);
        self.step = Some(mean(
            self.step,
            took.as_secs_f64() / f64::from(steps.max(1)),
        ));
    }

    /// Hears that nothing could be guessed.
    pub(super) fn record_miss(&mut self) {
        let misses = f64::from(self.misses);
        let short = |step| misses * step < MISSES_TIME.as_secs_f64();
        if self.misses < MISSES_MAX || self.step.is_some_and(short) {
            self.misses = (2 * self.misses).clamp(1, COOLDOWN_MAX);
        }
        self.cooldown = self.misses;
    }

    /// Hears that what guesses is still reading.
    pub(super) fn postpone(&mut self) {
        self.cooldown = 1;
    }

    /// Hears what a pass brought.
    pub(super) fn record_check(&mut self, drafted: usize, accepted: usize, took: Duration) {
        self.misses = 0;
        self.draft_len = if accepted == drafted {
            // One row more than guesses: tables have a power of two.
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
            // What comes next is another place of the text.
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
    fn right_guesses_become_more() {
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
        // Wrong ones become fewer as long as they pay.
        controller.record_check(31, 10, 2 * STEP);
        assert_eq!((controller.cooldown(), controller.draft_len()), (0, 15));
    }

    #[test]
    fn what_does_not_pay_rests_longer_each_time() {
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
        assert_eq!(controller.cooldown(), 8, "they had paid");
    }

    #[test]
    fn where_nothing_is_known_it_asks_less_often() {
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
    fn where_steps_are_short_it_asks_less_often() {
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
