//! Outputs that a request reads back: logits, log-probabilities, hidden states.

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
}

impl TargetLogprobs {
    /// Returns the buffer for the logits of `rows` rows.
    pub(super) fn logits_buffer(&mut self, rows: usize, vocab: usize) -> &mut [f32] {
        &mut self.logits[..rows * vocab]
    }

    /// Computes the log-probabilities from the logits of these rows of the sequence.
    pub(super) fn compute(&mut self, rows: Range<usize>, vocab: usize) {
        let range = rows.start - self.first..rows.end - self.first;
        let tokens = &self.tokens[range.clone()];
        let logits = self.logits.chunks_exact(vocab);
        for ((logprob, token), row) in self.logprobs[range].iter_mut().zip(tokens).zip(logits) {
            *logprob = log_softmax(row, *token as usize);
        }
    }
}

/// Returns `x[i] - ln(sum(exp(x)))`, computed in f64 after subtracting the maximum.
fn log_softmax(x: &[f32], i: usize) -> f32 {
    let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let largest = f64::from(largest);
    let sum: f64 = x.iter().map(|x| (f64::from(*x) - largest).exp()).sum();
    #[expect(clippy::cast_possible_truncation, reason = "log-probabilities are f32")]
    let logprob = (f64::from(x[i]) - largest - sum.ln()) as f32;
    logprob
}

#[cfg(test)]
mod tests {
    use super::*;

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
