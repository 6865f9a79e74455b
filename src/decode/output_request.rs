//! Outputs that a request reads back: logits, log-probabilities, hidden states.

use super::outputs::{Logprob, ScoredToken};
use std::ops::Range;

/// Requested output other than tokens, and its buffer.
#[derive(Debug, Default)]
pub(super) enum OutputRequest {
    #[default]
    Nothing,
    /// Logits after the last token, `[vocab]`.
    Logits(Vec<f32>),
    /// Logits after every token, `[tokens, vocab]`.
    AllLogits(Vec<f32>),
    /// Log-probabilities of given tokens.
    Logprobs(TargetLogprobs),
    /// Hidden states of the last layer after its norm, `[tokens, dim]`.
    Hidden(Vec<f32>),
}

impl OutputRequest {
    /// Returns the index of the first token that must be computed even if it is in the prefix
    /// cache. Tokens from there on are not added to the prefix cache. `usize::MAX` if there is
    /// none.
    pub(super) fn recompute_from(&self) -> usize {
        match self {
            Self::Nothing | Self::Logits(_) => usize::MAX,
            Self::AllLogits(_) | Self::Hidden(_) => 0,
            Self::Logprobs(targets) => targets.first,
        }
    }

    /// Returns the output values.
    pub(super) fn into_values(self) -> Vec<f32> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Logits(values) | Self::AllLogits(values) | Self::Hidden(values) => values,
            Self::Logprobs(targets) => targets.logprobs,
        }
    }

    /// Returns the log-probability of each target token with its alternatives.
    pub(super) fn into_scored_tokens(self) -> Vec<ScoredToken> {
        let Self::Logprobs(targets) = self else {
            return Vec::new();
        };
        let mut alternatives = targets.alternatives.chunks_exact(targets.top.max(1));
        let logprobs = targets.logprobs.into_iter();
        logprobs
            .map(|logprob| ScoredToken {
                logprob,
                top: alternatives.next().unwrap_or_default().to_vec(),
            })
            .collect()
    }
}

/// Target tokens and their log-probabilities.
#[derive(Debug)]
pub(super) struct TargetLogprobs {
    /// Index of the token before the first target token.
    pub(super) first: usize,
    pub(super) tokens: Vec<u32>,
    /// Logits of one pass, `[rows, vocab]`.
    pub(super) logits: Vec<f32>,
    /// Log-probability of each target token.
    pub(super) logprobs: Vec<f32>,
    /// Number of likeliest tokens for each target token.
    pub(super) top: usize,
    /// Likeliest tokens in the place of each target token, `[targets, top]`, each in descending
    /// order.
    pub(super) alternatives: Vec<Logprob>,
}

impl TargetLogprobs {
    /// Returns the buffer for the logits of `rows` rows.
    pub(super) fn logits_buffer(&mut self, rows: usize, vocab: usize) -> &mut [f32] {
        &mut self.logits[..rows * vocab]
    }

    /// Computes the log-probabilities from the logits of these rows of the sequence.
    pub(super) fn compute(&mut self, rows: Range<usize>, vocab: usize) {
        let range = rows.start - self.first..rows.end - self.first;
        let rows = self.logits.chunks_exact(vocab);
        for (at, row) in range.zip(rows) {
            let softmax = LogSoftmax::new(row);
            self.logprobs[at] = softmax.logprob(row[self.tokens[at] as usize]);
            let top = &mut self.alternatives[at * self.top..][..self.top];
            likeliest(row, top);
            // The slots contain logits.
            for slot in top {
                slot.logprob = softmax.logprob(slot.logprob);
            }
        }
    }
}

/// Normalization of one row of logits: `x[i] - ln(sum(exp(x)))`, computed in f64 after subtracting
/// the maximum.
#[derive(Clone, Copy, Debug)]
struct LogSoftmax {
    largest: f64,
    log_sum: f64,
}

impl LogSoftmax {
    fn new(x: &[f32]) -> Self {
        let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let largest = f64::from(largest);
        let sum: f64 = x.iter().map(|x| (f64::from(*x) - largest).exp()).sum();
        Self {
            largest,
            log_sum: sum.ln(),
        }
    }

    /// Returns the log-probability of a token with this logit.
    fn logprob(self, logit: f32) -> f32 {
        #[expect(clippy::cast_possible_truncation, reason = "log-probabilities are f32")]
        let logprob = (f64::from(logit) - self.largest - self.log_sum) as f32;
        logprob
    }
}

/// Writes the tokens with the largest logits in descending order, each with its logit; of equal
/// logits the lower token ID first. `out` has at most as many slots as there are logits.
fn likeliest(logits: &[f32], out: &mut [Logprob]) {
    let mut count = 0;
    for (token, &logit) in (0u32..).zip(logits) {
        let at = out[..count].partition_point(|slot| slot.logprob.total_cmp(&logit).is_ge());
        if at == out.len() {
            continue;
        }
        count = out.len().min(count + 1);
        out[at..count].rotate_right(1);
        out[at] = Logprob {
            token,
            logprob: logit,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_softmax(x: &[f32], i: usize) -> f32 {
        LogSoftmax::new(x).logprob(x[i])
    }

    #[test]
    fn likeliest_tokens_are_sorted() {
        let logits = [1.0, 3.0, -2.0, 3.0, f32::NEG_INFINITY, 2.0];
        let tokens = |top: usize| {
            let empty = Logprob {
                token: 0,
                logprob: 0.0,
            };
            let mut out = vec![empty; top];
            likeliest(&logits, &mut out);
            let tokens = out.iter().map(|slot| slot.token);
            tokens.collect::<Vec<_>>()
        };
        assert_eq!(tokens(0), [0; 0]);
        assert_eq!(tokens(1), [1]);
        assert_eq!(tokens(4), [1, 3, 5, 0]);
        assert_eq!(tokens(6), [1, 3, 5, 0, 2, 4]);
    }

    #[test]
    fn log_softmax_of_large_logits_is_finite() {
        let x = [1000.0, 999.0, -1000.0, f32::NEG_INFINITY];
        let log_sum = (1.0 + (-1.0f64).exp()).ln();
        for (at, expected) in [(0, -log_sum), (1, -1.0 - log_sum), (2, -2000.0 - log_sum)] {
            let found = f64::from(log_softmax(&x, at));
            assert!((found / expected - 1.0).abs() < 1e-7, "{at}: {found}");
        }
        assert_eq!(log_softmax(&x, 3), f32::NEG_INFINITY);
        assert_eq!(log_softmax(&[7.0; 4], 2), -(4.0f32.ln()));
    }
}
