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
    Scores(Vec<f32>),
    /// How likely tokens are, one by one.
    Likelihoods(Likelihoods),
    /// The last layer's normed row of every token, `[tokens, dim]`.
    Hidden(Vec<f32>),
}

impl OutputRequest {
    /// The token from which on each has to go through the model by itself, whatever the cache holds,
    /// and leaves there what nobody else takes; one that no sequence has where none has to.
    pub(super) fn each_from(&self) -> usize {
        match self {
            Self::Nothing | Self::Logits(_) => usize::MAX,
            Self::Scores(_) | Self::Hidden(_) => 0,
            Self::Likelihoods(wanted) => wanted.first,
        }
    }

    /// What was read back.
    pub(super) fn numbers(self) -> Vec<f32> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Logits(numbers) | Self::Scores(numbers) | Self::Hidden(numbers) => numbers,
            Self::Likelihoods(wanted) => wanted.numbers,
        }
    }
}

/// Tokens on their way to their log-probabilities.
#[derive(Debug)]
pub(super) struct Likelihoods {
    /// The row behind which the first of them stands.
    pub(super) first: usize,
    pub(super) tokens: Vec<u32>,
    /// The logits of a pass, `[rows, vocab]`.
    pub(super) logits: Vec<f32>,
    /// The log-probability of each token.
    pub(super) numbers: Vec<f32>,
}

impl Likelihoods {
    /// Room for the logits of so many rows.
    pub(super) fn room(&mut self, rows: usize, vocab: usize) -> &mut [f32] {
        &mut self.logits[..rows * vocab]
    }

    /// The logits of these rows of the sequence are there.
    pub(super) fn take(&mut self, rows: Range<usize>, vocab: usize) {
        let of = rows.start - self.first..rows.end - self.first;
        let tokens = &self.tokens[of.clone()];
        let logits = self.logits.chunks_exact(vocab);
        for ((number, token), row) in self.numbers[of].iter_mut().zip(tokens).zip(logits) {
            *number = log_softmax(row, *token as usize);
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
    let number = (f64::from(x[i]) - largest - sum.ln()) as f32;
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_logits_neither_overflow_nor_vanish() {
        let x = [1000.0, 999.0, -1000.0, f32::NEG_INFINITY];
        let tail = (1.0 + (-1.0f64).exp()).ln();
        for (at, expected) in [(0, -tail), (1, -1.0 - tail), (2, -2000.0 - tail)] {
            let found = f64::from(log_softmax(&x, at));
            assert!((found / expected - 1.0).abs() < 1e-7, "{at}: {found}");
        }
        assert_eq!(log_softmax(&x, 3), f32::NEG_INFINITY);
        assert_eq!(log_softmax(&[7.0; 4], 2), -(4.0f32.ln()));
    }
}
