//! Adapts the number of draft tokens, and pauses speculation while it is slower than single steps.

use std::time::Duration;

/// Number of steps in the first pause after a slow pass. Each further pause doubles it. A burst of as many steps
/// measures the duration of a step.
const COOLDOWN: u32 = 8;
/// Below this duration of a step, the overhead of a short burst (up to 0.1 ms) distorts the measurement.
const SHORT_STEP: Duration = Duration::from_millis(10);
/// Maximum number of steps that measure the duration of a step after the first pass. Bursts start with one step and
/// double, thus the last of these bursts has [`COOLDOWN`] steps.
const MEASURE_STEPS: u32 = 2 * COOLDOWN - 2;
/// Maximum number of steps of a pause.
const COOLDOWN_MAX: u32 = 1024;
/// Maximum pause after an empty draft, in steps. Each empty draft doubles it.
const MISSES_MAX: u32 = 8;
/// Maximum pause after an empty draft for short steps. Drafting interrupts bursts, which costs some
/// microseconds.
const MISSES_TIME: Duration = Duration::from_millis(3);
/// Maximum share of the time of an answer, and of [`LOSS_STEPS`] more steps, that speculation may lose.
const LOSS_MAX: f64 = 0.005;
const LOSS_STEPS: f64 = 100.0;
/// Maximum ratio of a measured step to the average; other load can make a burst much longer.
const OUTLIER: f64 = 1.25;
/// Maximum duration of passes that continue, as a share of that of as many steps. Smaller gains are less than the
/// error of the measurement.
const PASS_TIME_MAX: f64 = 0.95;
/// Weight of the last measurement in the moving averages.
const WEIGHT: f64 = 0.25;

/// Compares passes with draft tokens to single steps.
#[derive(Debug)]
pub(super) struct SpeculationController {
    /// Number of draft tokens of the first pass and after a pause, and the maximum.
    range: [usize; 2],
    /// Number of draft tokens of the next pass.
    draft_len: usize,
    /// Average duration of a step in seconds; `None` before the first step.
    step: Option<f64>,
    /// Number of steps of the longest burst that the average includes.
    burst: u32,
    /// Average number of tokens and duration in seconds of a pass.
    passes: Option<(f64, f64)>,
    /// Duration of all steps and passes in seconds.
    elapsed: f64,
    /// Seconds that passes saved over single steps; negative if they lost time.
    saved: f64,
    /// Whether a pass made a burst short.
    has_passed: bool,
    /// Number of tokens and duration in seconds of the first pass, while longer bursts measure the duration of a step.
    unrated: Option<(f64, f64)>,
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
    pub(super) fn new(range: [usize; 2]) -> Self {
        Self {
            range,
            draft_len: range[0],
            step: None,
            burst: 0,
            passes: None,
            elapsed: 0.0,
            saved: 0.0,
            has_passed: false,
            unrated: None,
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
        self.elapsed += took.as_secs_f64();
        let step = took.as_secs_f64() / f64::from(steps.max(1));
        let is_longer = steps > self.burst;
        // The steps of a short burst take longer, and drafts make bursts short.
        if steps >= self.burst.min(COOLDOWN) {
            let so_far = self.step.filter(|_| self.burst >= steps.min(COOLDOWN));
            let max = so_far.map_or(step, |so_far| OUTLIER * so_far);
            self.step = Some(mean(so_far, step.min(max)));
            self.burst = self.burst.max(steps);
        } else if self.has_passed {
            let expected = self.step.map_or(0.0, |step| f64::from(steps) * step);
            self.saved -= (took.as_secs_f64() - expected).max(0.0);
        }
        if steps >= COOLDOWN || !is_longer {
            self.rate_first_pass();
        }
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
            (2 * self.draft_len + 1).min(self.range[1])
        } else if accepted < drafted / 2 {
            (self.draft_len / 2).max(1)
        } else {
            self.draft_len
        };
        let count = u32::try_from(accepted + 1).map_or(f64::MAX, f64::from);
        let took = took.as_secs_f64();
        self.elapsed += took;
        self.rate_first_pass();
        let is_short = self
            .step
            .is_some_and(|step| step.min(took) < SHORT_STEP.as_secs_f64());
        if !self.has_passed && self.burst < COOLDOWN && is_short {
            self.cooldown = MEASURE_STEPS;
            self.unrated = Some((count, took));
        } else {
            self.rate(count, took);
        }
        self.has_passed = true;
    }

    /// Rates the first pass, if that was delayed.
    fn rate_first_pass(&mut self) {
        if let Some((count, took)) = self.unrated.take() {
            self.cooldown = 0;
            self.rate(count, took);
        }
    }

    /// Compares a pass of `count` tokens with as many steps, and pauses speculation if it is slower.
    fn rate(&mut self, count: f64, took: f64) {
        // Steps precede the first draft.
        let step = self.step.unwrap_or(took);
        self.saved += count * step - took;
        let (tokens, seconds) = self.passes.unzip();
        let tokens = mean(tokens, count);
        let seconds = mean(seconds, took);
        self.passes = Some((tokens, seconds));
        let pause = self.pause(step);
        if pause > 0 || seconds > PASS_TIME_MAX * tokens * step {
            self.cooldown = self.next_cooldown.max(pause);
            self.next_cooldown = (2 * self.next_cooldown).min(COOLDOWN_MAX);
            // The averages do not apply to later text.
            self.passes = None;
            self.draft_len = self.range[0];
        } else {
            self.next_cooldown = COOLDOWN;
        }
    }

    /// Returns the number of steps after which the lost time is at most the limit.
    fn pause(&self, step: f64) -> u32 {
        let excess = -self.saved - LOSS_MAX * (self.elapsed + LOSS_STEPS * step);
        let steps = (excess / (LOSS_MAX * step)).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is clamped"
        )]
        let steps = steps.clamp(0.0, COOLDOWN_MAX.into()) as u32;
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);

    #[test]
    fn long_bursts_measure_the_duration_of_a_step() {
        let mut controller = SpeculationController::new([3, 31]);
        let mut after = |took: u32, steps| {
            controller.record_steps(took * STEP, steps);
            controller.step.expect("measured") / STEP.as_secs_f64()
        };
        assert_eq!(after(3, 1), 3.0);
        assert_eq!(after(4, 2), 2.0);
        assert_eq!(after(8, 8), 1.0);
        assert_eq!(after(3, 1), 1.0);
        assert_eq!(after(36, 32), 1.03125);
        assert_eq!(after(8, 8), 1.0234375);
        // An outlier counts as 1.25 steps.
        let before = after(8, 8);
        assert_eq!(after(800, 8), before * 1.0625);
    }

    /// Also the first pass is compared with the steps of a long burst.
    #[test]
    fn short_steps_are_measured_after_the_first_pass() {
        let step = STEP / 10;
        let mut controller = SpeculationController::new([1, 4]);
        controller.record_steps(2 * step, 1);
        controller.record_check(1, 1, 3 * step);
        for steps in [2, 4, 8] {
            assert!(controller.cooldown() >= steps);
            controller.record_steps(step * steps, steps);
        }
        // The pass lost one step: the limit after 100 steps, those so far and a pause.
        assert_eq!(controller.cooldown(), 100 - 19);
    }

    #[test]
    fn measurement_ends_if_bursts_do_not_grow() {
        let step = STEP / 10;
        let mut controller = SpeculationController::new([1, 4]);
        controller.record_steps(step, 1);
        controller.record_check(1, 1, step);
        assert_eq!(controller.cooldown(), MEASURE_STEPS);
        controller.record_steps(step, 1);
        assert_eq!(controller.cooldown(), 0);
        // A later pass is rated at once.
        controller.record_check(1, 0, 2 * step);
        controller.record_check(1, 1, step);
        assert_eq!(controller.cooldown(), 0);
    }

    #[test]
    fn long_bursts_before_the_first_pass_need_no_measurement() {
        let step = STEP / 10;
        let mut controller = SpeculationController::new([3, 31]);
        controller.record_steps(8 * step, 8);
        controller.record_check(3, 3, 2 * step);
        assert_eq!(controller.cooldown(), 0);
    }

    /// A pass that saves less than the short burst after it loses is followed by a pause.
    #[test]
    fn short_bursts_count_as_lost_time() {
        let mut controller = SpeculationController::new([3, 31]);
        controller.record_steps(32 * STEP, 32);
        controller.record_check(3, 1, STEP);
        assert_eq!(controller.cooldown(), 0);
        controller.record_steps(5 * STEP, 1);
        controller.record_check(3, 1, 3 * STEP / 2);
        assert!(controller.cooldown() > COOLDOWN);
    }

    #[test]
    fn accepted_drafts_grow() {
        let mut controller = SpeculationController::new([3, 31]);
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

    /// Decodes tokens until `count`, with passes that take `pass` and of which every `nth` is accepted as a whole.
    /// Returns the duration.
    fn decode(count: u32, pass: Duration, nth: u32) -> Duration {
        let mut controller = SpeculationController::new([3, 3]);
        let (mut tokens, mut passes, mut took) = (0, 0, Duration::ZERO);
        while tokens < count {
            let steps = controller.cooldown();
            if steps > 0 {
                controller.record_steps(STEP * steps, steps);
            }
            (tokens, took) = (tokens + steps, took + STEP * steps);
            passes += 1;
            let drafted = controller.draft_len();
            let accepted = if passes % nth == 0 { drafted } else { 0 };
            controller.record_check(drafted, accepted, pass);
            tokens += u32::try_from(accepted).expect("few") + 1;
            took += pass;
        }
        took * count / tokens
    }

    #[test]
    fn slow_speculation_loses_little_time() {
        for (pass, nth) in [(2, 1000), (4, 1000), (4, 2), (3, 3), (5, 4)] {
            let took = decode(2000, STEP * pass, nth);
            assert!(
                took < STEP * 2000 * 102 / 100,
                "passes of {pass} steps, {nth}: {took:?}"
            );
        }
    }

    #[test]
    fn fast_speculation_continues() {
        for (pass, nth) in [(2, 1), (2, 2), (1, 1000)] {
            let took = decode(2000, STEP * pass, nth);
            assert!(
                took < STEP * 2000 * 101 / 100,
                "passes of {pass} steps, {nth}: {took:?}"
            );
        }
        assert!(decode(2000, STEP * 2, 1) < STEP * 1050);
    }

    #[test]
    fn slow_passes_pause() {
        let mut controller = SpeculationController::new([3, 31]);
        controller.record_steps(STEP * 8, 8);
        controller.record_check(3, 0, 2 * STEP);
        // It lost the time of one step: the limit after 100 steps.
        assert_eq!((controller.cooldown(), controller.draft_len()), (90, 3));
    }

    #[test]
    fn empty_drafts_reduce_draft_frequency() {
        let mut controller = SpeculationController::new([3, 31]);
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
            let mut controller = SpeculationController::new([3, 31]);
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
