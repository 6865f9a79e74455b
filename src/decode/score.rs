//! Scores: how likely a model finds tokens behind those in front of them.

use super::Session;
use super::request::Wanted;
use super::session::room;
use crate::error::{Result, bail};
use crate::model::TableId;
use std::ops::Range;

/// Tokens on their way to their log-probabilities.
#[derive(Debug)]
pub(super) struct Likelihoods {
    /// The row behind which the first of them stands.
    pub(super) first: usize,
    tokens: Vec<u32>,
    /// The logits of a pass, `[rows, vocab]`.
    logits: Vec<f32>,
    /// The log-probability of each token.
    pub(super) numbers: Vec<f32>,
}

impl Session {
    /// The log-probability (natural logarithm) of each token from the `from`th on, given all that
    /// stand in front of it. The text begins anew, beside the sequence of the session; what is in
    /// front of `from` may come out of the cache and stays there, so that several ends of one
    /// beginning cost that once. `progress` hears how many of how many tokens are done.
    ///
    /// # Errors
    ///
    /// `Argument` where `from` names no token with one in front of it and for an id outside the
    /// vocabulary, `TooLarge` where the tokens do not fit the context, `State` for an encoder,
    /// `Memory`; nothing is computed then. `Cancelled` after [`Cancel::cancel`](super::Cancel).
    pub fn score(
        &mut self,
        tokens: &[u32],
        from: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<f32>> {
        let (vocab, context) = (self.facts().vocab, self.facts().context as usize);
        let Some((last, fed)) = tokens.split_last().filter(|_| from < tokens.len()) else {
            let count = tokens.len();
            bail!(Argument, "no token {from} to score: there are {count}");
        };
        if from == 0 {
            bail!(Argument, "the first token has nothing in front of it");
        }
        // The last one has to be known and is not fed.
        if fed.len() > context {
            let (count, most) = (tokens.len(), context + 1);
            bail!(
                TooLarge,
                "{count} tokens are over the {most} that a context of {context} positions scores"
            );
        }
        if *last >= vocab {
            bail!(
                Argument,
                "token {last} is outside the vocabulary of {vocab}"
            );
        }
        let steps = self.model.tables().iter();
        let steps = steps.filter(|table| table.name == TableId::Step.name());
        let rows = steps.map(|table| table.tokens as usize).max().unwrap_or(0);
        let wanted = Likelihoods {
            first: from - 1,
            tokens: tokens[from..].to_vec(),
            logits: room(rows * vocab as usize)?,
            numbers: room(tokens.len() - from)?,
        };
        self.beside(fed)?
            .feed(Wanted::Likelihoods(wanted), progress)
    }
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
