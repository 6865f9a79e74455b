//! How many guesses a pass has, and when there are none: as they have paid so far.

use std::time::Duration;

/// DraftStats of the first pass.
const BEGIN: usize = 3;
/// Steps without guesses behind the first pass that did not pay; as many more each time.
const REST: u32 = 8;
/// Such steps at most.
const REST_MAX: u32 = 1024;
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
    most: usize,
    /// DraftStats of the next pass.
    count: usize,
    /// Seconds of a step; none where no step was seen.
    step: Option<f64>,
    /// Tokens and seconds of a pass, on average.
    passes: Option<(f64, f64)>,
    /// Steps to go until there are guesses again.
    rest: u32,
    next_rest: u32,
    misses: u32,
}

/// The mean of numbers, in which later ones weigh more.
fn mean(so_far: Option<f64>, next: f64) -> f64 {
    so_far.map_or(next, |so_far| so_far + WEIGHT * (next - so_far))
}

impl SpeculationController {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            count: BEGIN.min(most),
            step: None,
            passes: None,
            // The time of a step has to be known.
            rest: 1,
            next_rest: REST,
            misses: 0,
        }
    }

    /// DraftStats that the next pass is to have.
    pub(super) fn guesses(&self) -> usize {
        self.count
    }

    /// Steps that are to go without guesses.
    pub(super) fn rest(&self) -> u32 {
        self.rest
    }

    /// Hears of steps without guesses.
    pub(super) fn stepped(&mut self, took: Duration, steps: u32) {
        self.rest = self.rest.saturating_sub(steps);
        self.step = Some(mean(
            self.step,
            took.as_secs_f64() / f64::from(steps.max(1)),
        ));
    }

    /// Hears that nothing could be guessed.
    pub(super) fn missed(&mut self) {
        let misses = f64::from(self.misses);
        let short = |step| misses * step < MISSES_TIME.as_secs_f64();
        if self.misses < MISSES_MAX || self.step.is_some_and(short) {
            self.misses = (2 * self.misses).clamp(1, REST_MAX);
        }
        self.rest = self.misses;
    }

    /// Hears that what guesses is still reading.
    pub(super) fn later(&mut self) {
        self.rest = 1;
    }

    /// Hears what a pass brought.
    pub(super) fn checked(&mut self, made: usize, right: usize, took: Duration) {
        self.misses = 0;
        self.count = if right == made {
            // One row more than guesses: tables have a power of two.
            (2 * self.count + 1).min(self.most)
        } else if right < made / 2 {
            (self.count / 2).max(1)
        } else {
            self.count
        };
        let count = u32::try_from(right + 1).map_or(f64::MAX, f64::from);
        let (tokens, seconds) = self.passes.unzip();
        let tokens = mean(tokens, count);
        let seconds = mean(seconds, took.as_secs_f64());
        self.passes = Some((tokens, seconds));
        if self.step.is_some_and(|step| seconds > tokens * step) {
            self.rest = self.next_rest;
            self.next_rest = (2 * self.next_rest).min(REST_MAX);
            // What comes next is another place of the text.
            self.passes = None;
            self.count = BEGIN.min(self.most);
        } else {
            self.next_rest = REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);

    #[test]
    fn right_guesses_become_more() {
        let mut pace = SpeculationController::new(31);
        assert_eq!((pace.rest(), pace.guesses()), (1, 3));
        pace.stepped(STEP, 1);
        let mut counts = Vec::new();
        for _ in 0..5 {
            assert_eq!(pace.rest(), 0);
            let made = pace.guesses();
            counts.push(made);
            pace.checked(made, made, 2 * STEP);
        }
        assert_eq!(counts, [3, 7, 15, 31, 31]);
        // Wrong ones become fewer as long as they pay.
        pace.checked(31, 10, 2 * STEP);
        assert_eq!((pace.rest(), pace.guesses()), (0, 15));
    }

    #[test]
    fn what_does_not_pay_rests_longer_each_time() {
        let mut pace = SpeculationController::new(31);
        pace.stepped(STEP, 1);
        let mut rests = Vec::new();
        for _ in 0..9 {
            pace.checked(3, 0, 2 * STEP);
            rests.push(pace.rest());
            pace.stepped(STEP * pace.rest(), pace.rest());
            assert_eq!((pace.rest(), pace.guesses()), (0, 3));
        }
        assert_eq!(rests, [8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        pace.checked(3, 3, STEP);
        pace.checked(7, 0, 20 * STEP);
        assert_eq!(pace.rest(), 8, "they had paid");
    }

    #[test]
    fn where_nothing_is_known_it_asks_less_often() {
        let mut pace = SpeculationController::new(31);
        pace.stepped(STEP, 1);
        for rest in [1, 2, 4, 8, 8] {
            pace.missed();
            assert_eq!(pace.rest(), rest);
            pace.stepped(STEP * rest, rest);
        }
        pace.checked(3, 3, STEP);
        pace.missed();
        assert_eq!(pace.rest(), 1);
    }

    #[test]
    fn where_steps_are_short_it_asks_less_often() {
        for (step, longest) in [(400, 8), (200, 16), (100, 32), (1, REST_MAX)] {
            let step = Duration::from_micros(step);
            let mut pace = SpeculationController::new(31);
            pace.stepped(step, 1);
            for _ in 0..12 {
                pace.missed();
                pace.stepped(step * pace.rest(), pace.rest());
            }
            pace.missed();
            assert_eq!(pace.rest(), longest, "steps of {step:?}");
        }
    }
}
