//! Numbers that a request reads back: logits, log-probabilities, hidden states.

use std::ops::Range;

/// What is read back of a sequence that goes through the model, and the room for it.
#[derive(Debug, Default)]
pub(super) enum OutputRequest {
    #[default]
    Nothing,
    /// The logits behind the last token, `[vocab]`.
    Logits(Vec<f32>),
    /// The logits behind every token, `[tokens, vocab]`.
    AllLogits(Vec<f32>),
    /// How likely tokens are, one by one.
    LogProbs(TargetLogProbs),
    /// The last layer's normed row of every token, `[tokens, dim]`.
    Hidden(Vec<f32>),
}

impl OutputRequest {
    /// The token from which on each has to go through the model by itself, whatever the cache holds,
    /// and leaves there what nobody else takes; one that no sequence has where none has to.
    pub(super) fn recompute_from(&self) -> usize {
        match self {
            Self::Nothing | Self::Logits(_) => usize::MAX,
            Self::AllLogits(_) | Self::Hidden(_) => 0,
            Self::LogProbs(targets) => targets.first,
        }
    }

    /// What was read back.
    pub(super) fn into_values(self) -> Vec<f32> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Logits(values) | Self::AllLogits(values) | Self::Hidden(values) => values,
            Self::LogProbs(targets) => targets.log_probs,
        }
    }
}

/// Tokens on their way to their log-probabilities.
#[derive(Debug)]
pub(super) struct TargetLogProbs {
    /// The row behind which the first of them stands.
    pub(super) first: usize,
    pub(super) tokens: Vec<u32>,
    /// The logits of a pass, `[rows, vocab]`.
    pub(super) logits: Vec<f32>,
    /// The log-probability of each token.
    pub(super) log_probs: Vec<f32>,
}

impl TargetLogProbs {
    /// Room for the logits of so many rows.
    pub(super) fn logits_buffer(&mut self, rows: usize, vocab: usize) -> &mut [f32] {
        &mut self.logits[..rows * vocab]
    }

    /// The logits of these rows of the sequence are there.
    pub(super) fn compute(&mut self, rows: Range<usize>, vocab: usize) {
        let range = rows.start - self.first..rows.end - self.first;
        let tokens = &self.tokens[range.clone()];
        let logits = self.logits.chunks_exact(vocab);
        for ((log_prob, token), row) in self.log_probs[range].iter_mut().zip(tokens).zip(logits) {
            *log_prob = log_softmax(row, *token as usize);
        }
    }
}

/// `x[i] - ln(sum(exp(x)))`, in f64 and with the largest number taken out first.
fn log_softmax(x: &[f32], i: usize) -> f32 {
    let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let largest = f64::from(largest);
    let sum: f64 = x.iter().map(|x| (f64::from(*x) - largest).exp()).sum();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounded to what logits have"
    )]
    let log_prob = (f64::from(x[i]) - largest - sum.ln()) as f32;
    log_prob
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_logits_neither_overflow_nor_vanish() {
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
