//! Decision whether the text of a window is kept, decoded again at a higher temperature, or dropped
//! as silence.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write;

/// Returns temperatures from `first` to 1.0 in steps of `increment`. Without an increment above 0,
/// `first` is the only one.
pub fn temperatures(first: f64, increment: Option<f64>) -> Vec<f64> {
    let mut all = vec![first];
    let Some(increment) = increment.filter(|x| *x >= 0.01) else {
        return all;
    };
    // At most 100 steps of 0.01 lead from 0 to 1.
    for step in 1..=100 {
        // Rounded, so that three times 0.2 is 0.6.
        let next = ((first + f64::from(step) * increment) * 1e6).round() / 1e6;
        if next > 1.0 {
            break;
        }
        all.push(next);
    }
    all
}

/// Length of a text in bytes divided by its length after compression by zlib. Repetitive text has a
/// high ratio. OpenAI strips the text of white space before.
pub fn compression_ratio(text: &str) -> f64 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    let written = encoder.write_all(text.as_bytes());
    let compressed = written.and_then(|()| encoder.finish());
    // Writing to memory does not fail.
    compressed.map_or(0.0, |bytes| text.len() as f64 / bytes.len() as f64)
}

/// Facts about the text of a window at one temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attempt {
    /// Sum of the log-probabilities of all tokens, `eot` included, divided by their number.
    pub avg_logprob: f64,
    /// Probability of `nospeech` at the position of `startoftranscript`.
    pub no_speech_prob: f64,
    /// [`compression_ratio`] of the text.
    pub compression_ratio: f64,
}

/// What happens to the text of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The text is kept.
    Accept,
    /// The window is decoded again at the next temperature.
    Retry,
    /// The window has no speech; its text is dropped.
    Silence,
}

/// Thresholds of [`Attempt`]s. `None` disables a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// A text with a higher compression ratio is repetitive. Default 2.4.
    pub compression_ratio: Option<f64>,
    /// A text with a lower average log-probability is improbable. Default -1.0.
    pub logprob: Option<f64>,
    /// A window with a higher probability of no speech is silent, unless the average log-probability
    /// is above `logprob`. Default 0.6.
    pub no_speech: Option<f64>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            compression_ratio: Some(2.4),
            logprob: Some(-1.0),
            no_speech: Some(0.6),
        }
    }
}

impl Thresholds {
    /// Decides about an attempt that is not the last.
    pub fn judge(&self, attempt: &Attempt) -> Verdict {
        let is_repetitive = self
            .compression_ratio
            .is_some_and(|max| attempt.compression_ratio > max);
        let is_improbable = self.logprob.is_some_and(|min| attempt.avg_logprob < min);
        let is_silent = self.is_no_speech(attempt) && is_improbable;
        if (is_repetitive || is_improbable) && !is_silent {
            return Verdict::Retry;
        }
        self.judge_last(attempt)
    }

    /// Decides about the attempt at the last temperature.
    pub fn judge_last(&self, attempt: &Attempt) -> Verdict {
        let is_probable = self.logprob.is_some_and(|min| attempt.avg_logprob > min);
        if self.is_no_speech(attempt) && !is_probable {
            return Verdict::Silence;
        }
        Verdict::Accept
    }

    fn is_no_speech(&self, attempt: &Attempt) -> bool {
        self.no_speech
            .is_some_and(|max| attempt.no_speech_prob > max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attempt of these average log-probability, no-speech probability and compression ratio.
    fn judge(thresholds: &Thresholds, attempt: [f64; 3]) -> (Verdict, Verdict) {
        let [avg_logprob, no_speech_prob, compression_ratio] = attempt;
        let attempt = Attempt {
            avg_logprob,
            no_speech_prob,
            compression_ratio,
        };
        (thresholds.judge(&attempt), thresholds.judge_last(&attempt))
    }

    #[test]
    fn verdicts_are_those_of_openai() {
        use Verdict::{Accept, Retry, Silence};
        let default = Thresholds::default();
        for (attempt, expected) in [
            ([-0.3, 0.1, 1.5], (Accept, Accept)),
            ([-0.3, 0.1, 2.5], (Retry, Accept)),
            ([-1.5, 0.1, 1.5], (Retry, Accept)),
            ([-1.5, 0.7, 1.5], (Silence, Silence)),
            ([-1.5, 0.7, 2.5], (Silence, Silence)),
            ([-0.3, 0.7, 1.5], (Accept, Accept)),
            ([-0.3, 0.7, 2.5], (Retry, Accept)),
            // Exactly at the threshold: not improbable, not probable.
            ([-1.0, 0.7, 1.5], (Silence, Silence)),
            ([-1.0, 0.6, 2.4], (Accept, Accept)),
            ([f64::NAN, 0.1, 1.0], (Accept, Accept)),
        ] {
            assert_eq!(judge(&default, attempt), expected, "{attempt:?}");
        }
        let without = Thresholds {
            logprob: None,
            ..default
        };
        assert_eq!(judge(&without, [-9.0, 0.7, 1.5]), (Silence, Silence));
        assert_eq!(judge(&without, [-0.1, 0.7, 2.5]), (Retry, Silence));
        let none = Thresholds {
            compression_ratio: None,
            logprob: None,
            no_speech: None,
        };
        assert_eq!(judge(&none, [-9.0, 1.0, 9.0]), (Accept, Accept));
    }

    #[test]
    fn ratio_is_that_of_zlib() {
        // Lengths of `zlib.compress` of Python.
        for (text, compressed) in [
            (String::new(), 8.0),
            (
                "And so my fellow Americans ask not what your country can do for you".to_string(),
                66.0,
            ),
            ("Thank you. ".repeat(30), 24.0),
        ] {
            let expected = text.len() as f64 / compressed;
            let found = compression_ratio(&text);
            assert!(
                (found - expected).abs() < 0.05 * expected + 1e-9,
                "{found} {expected}"
            );
        }
    }

    #[test]
    fn temperatures_rise_to_1() {
        assert_eq!(temperatures(0.0, Some(0.2)), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(temperatures(0.5, Some(0.25)), [0.5, 0.75, 1.0]);
        for increment in [None, Some(0.0), Some(-1.0), Some(f64::NAN)] {
            assert_eq!(temperatures(0.3, increment), [0.3]);
        }
        assert_eq!(temperatures(1.5, Some(0.2)), [1.5]);
    }
}
