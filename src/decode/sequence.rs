//! Tokens of a sequence, each with the kind of table that computes it.

use crate::error::{Error, ErrorKind, Result};
use crate::op::table::FEW_TOKENS;
use std::ops::Range;

/// Tag of token IDs that step tables compute.
const SAMPLED: u32 = 1 << 31;

/// Tokens of a sequence. Chunk tables compute prompt tokens and step tables compute sampled tokens.
/// Their KV cache entries may differ in the last bits, so the kind of each token is recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    tokens: Vec<u32>,
    sampled: Vec<bool>,
}

impl Sequence {
    /// Reserves memory for `tokens` tokens in total.
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
                let message = format_args!("out of memory: cannot allocate {tokens} tokens");
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

    /// Appends a tagged token ID.
    pub(super) fn push_token_id(&mut self, id: u32) {
        self.tokens.push(id & !SAMPLED);
        self.sampled.push(id & SAMPLED != 0);
    }

    /// Removes tokens. The tokens after them move, and become prompt tokens.
    pub(super) fn remove(&mut self, range: Range<usize>) {
        self.tokens.drain(range.clone());
        self.sampled.drain(range.clone());
        self.sampled[range.start..].fill(false);
    }

    /// Returns the number of tokens up to the last prompt token.
    pub(super) fn prompt_len(&self) -> usize {
        self.sampled
            .iter()
            .rposition(|sampled| !sampled)
            .map_or(0, |at| at + 1)
    }

    pub(super) fn is_sampled(&self, at: usize) -> bool {
        self.sampled[at]
    }

    /// Returns the range of tokens from `at` on that one pass of the same kind of table can
    /// compute. Chunks end at multiples of the chunk size, wherever they start.
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

    /// Returns the longest prefix of the first `cached` tokens that ends at a chunk boundary.
    pub(super) fn aligned(&self, cached: usize, chunk: usize) -> usize {
        let prompt = self.sampled[..cached]
            .iter()
            .rev()
            .take_while(|p| !**p)
            .count();
        (cached / chunk * chunk).max(cached - prompt)
    }

    /// Writes the IDs under which the prefix cache stores the first `len` tokens. Sampled tokens
    /// are tagged if step tables write different bits.
    pub(super) fn token_ids(&self, len: usize, step_bits: StepBits, ids: &mut Vec<u32>) {
        ids.clear();
        let tagged = self.tokens.iter().zip(&self.sampled).take(len);
        ids.extend(tagged.map(|(token, sampled)| match step_bits {
            StepBits::Distinct if *sampled => token | SAMPLED,
            _ => *token,
        }));
    }
}

/// Whether step tables and chunk tables write different bits to the KV cache.
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
    fn runs_contain_one_kind_of_token() {
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
        let mut ids = Vec::new();
        sequence.token_ids(12, StepBits::Distinct, &mut ids);
        assert_eq!(ids[9..], [1, 2 | SAMPLED, 2 | SAMPLED]);
        let mut again = Sequence::default();
        ids.iter().for_each(|id| again.push_token_id(*id));
        assert_eq!(again.tokens(), &sequence.tokens()[..12]);
        assert_eq!(
            [9, 10, 11].map(|at| again.is_sampled(at)),
            [false, true, true]
        );
        sequence.token_ids(12, StepBits::SameAsChunk, &mut ids);
        assert_eq!(ids[9..], [1, 2, 2]);
        sequence.remove(3..11);
        assert_eq!(sequence.tokens(), [1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
        assert!(!sequence.is_sampled(4), "moved tokens are prompt tokens");
    }
}
