//! The tokens of a sequence, and by which kind of table each goes through the model.

use crate::error::{Error, ErrorKind, Result};
use crate::op::builder::FEW_TOKENS;
use std::ops::Range;

/// Marks the key of a token that goes through a table for steps.
const SAMPLED: u32 = 1 << 31;

/// Every token of a sequence. Given ones go through the table for chunks, picked ones through those
/// for steps; the numbers that they leave in the cache may differ in their last bits, so that it is
/// kept of each which it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    tokens: Vec<u32>,
    sampled: Vec<bool>,
}

impl Sequence {
    /// Makes room for so many tokens in all, so that none of them takes memory.
    ///
    /// # Errors
    ///
    /// `Memory`.
    pub(super) fn reserve(&mut self, tokens: usize) -> Result<()> {
        let more = tokens.saturating_sub(self.tokens.len());
        let reserved = self.tokens.try_reserve_exact(more);
        reserved
            .and_then(|()| self.sampled.try_reserve_exact(more))
            .map_err(|e| {
                let message = format_args!("room for {tokens} tokens cannot be had");
                Error::new(ErrorKind::Memory, message).caused_by(e)
            })
    }

    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn copy_from(&mut self, other: &Self) {
        self.truncate(0);
        self.tokens.extend_from_slice(&other.tokens);
        self.sampled.extend_from_slice(&other.sampled);
    }

    pub(super) fn push_prompt(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        self.sampled.resize(self.tokens.len(), false);
    }

    pub(super) fn push_sampled(&mut self, token: u32) {
        self.tokens.push(token);
        self.sampled.push(true);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.sampled.truncate(len);
    }

    /// Appends the token of a key that says by which kind of table it goes.
    pub(super) fn push_token_id(&mut self, key: u32) {
        self.tokens.push(key & !SAMPLED);
        self.sampled.push(key & SAMPLED != 0);
    }

    /// Takes tokens out. Those behind them have new positions: they are given ones there.
    pub(super) fn remove(&mut self, range: Range<usize>) {
        self.tokens.drain(range.clone());
        self.sampled.drain(range.clone());
        self.sampled[range.start..].fill(false);
    }

    pub(super) fn is_sampled(&self, at: usize) -> bool {
        self.sampled[at]
    }

    /// The tokens from `at` on that go through the same kind of table, as many as one has rows;
    /// chunks end at multiples of their size, wherever they begin.
    pub(super) fn run(&self, at: usize, rows: [usize; 2]) -> Range<usize> {
        let [steps, chunk] = rows;
        let sampled = self.sampled[at];
        let same = self.sampled[at..]
            .iter()
            .take_while(|p| **p == sampled)
            .count();
        let max = if sampled { steps } else { chunk - at % chunk };
        at..at + same.min(max)
    }

    /// The longest beginning of the first `known` tokens that ends where a chunk does.
    pub(super) fn aligned(&self, cached: usize, chunk: usize) -> usize {
        let prompt = self.sampled[..cached]
            .iter()
            .rev()
            .take_while(|p| !**p)
            .count();
        (cached / chunk * chunk).max(cached - prompt)
    }

    /// What the cache knows the first `len` tokens by: where `apart` says that tables leave other
    /// bits, by the kind of table too.
    pub(super) fn token_ids(&self, len: usize, step_bits: StepBits, keys: &mut Vec<u32>) {
        keys.clear();
        let both = self.tokens.iter().zip(&self.sampled).take(len);
        keys.extend(both.map(|(token, sampled)| match step_bits {
            StepBits::Distinct if *sampled => token | SAMPLED,
            _ => *token,
        }));
    }
}

/// Whether tables for steps and for chunks leave other bits in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepBits {
    SameAsChunk,
    Distinct,
}

const _: () = assert!(FEW_TOKENS < SAMPLED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_of_one_kind() {
        let mut sequence = Sequence::default();
        sequence.push_prompt(&[1; 10]);
        (0..5).for_each(|_| sequence.push_sampled(2));
        sequence.push_prompt(&[3; 4]);
        let rows = [2, 8];
        let mut runs = Vec::new();
        let mut at = 0;
        while at < sequence.len() {
            let run = sequence.run(at, rows);
            at = run.end;
            runs.push(run);
        }
        assert_eq!(runs, [0..8, 8..10, 10..12, 12..14, 14..15, 15..16, 16..19]);
        let mut keys = Vec::new();
        sequence.token_ids(12, StepBits::Distinct, &mut keys);
        assert_eq!(keys[9..], [1, 2 | SAMPLED, 2 | SAMPLED]);
        let mut again = Sequence::default();
        keys.iter().for_each(|key| again.push_token_id(*key));
        assert_eq!(again.tokens(), &sequence.tokens()[..12]);
        assert_eq!(
            [9, 10, 11].map(|at| again.is_sampled(at)),
            [false, true, true]
        );
        sequence.token_ids(12, StepBits::SameAsChunk, &mut keys);
        assert_eq!(keys[9..], [1, 2, 2]);
        sequence.remove(3..11);
        assert_eq!(sequence.tokens(), [1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
        assert!(!sequence.is_sampled(4), "it moved");
    }
}
