//! Prompt lookup: what followed the last few tokens when they stood in the sequence before.
//!
//! After Saxena, "Prompt Lookup Decoding" (2023), with an index in the place of a search.

use super::DraftSource;

/// Tokens that have to be the same.
const GRAM: usize = 3;

/// Where every few tokens of a sequence stood last.
#[derive(Debug)]
pub(in crate::decode) struct Lookup {
    /// By the hash of the tokens: the position behind them; 0 where there is none.
    next: Vec<u32>,
    /// Tokens of the sequence that are in it.
    indexed: usize,
}

impl Lookup {
    /// An index for a sequence of so many tokens at most.
    pub(in crate::decode) fn with_capacity(tokens: usize) -> Self {
        Self {
            next: vec![0; (2 * tokens).next_power_of_two()],
            indexed: GRAM,
        }
    }

    fn bucket(&self, gram: &[u32]) -> usize {
        let mix = |hash: u64, token: &u32| {
            // The multiplier of Knuth's linear congruential generator (MMIX).
            (hash ^ u64::from(*token)).wrapping_mul(6_364_136_223_846_793_005)
        };
        let hash = gram.iter().fold(0, mix) >> u32::BITS;
        usize::try_from(hash).expect("32 bits") & (self.next.len() - 1)
    }
}

impl DraftSource for Lookup {
    /// What followed the last tokens before, `count` of them; where that reaches the end of the
    /// sequence, it is taken to go on in the same way.
    fn draft(&mut self, tokens: &[u32], count: usize, out: &mut Vec<u32>) -> bool {
        let len = tokens.len();
        for at in self.indexed..len {
            let bucket = self.bucket(&tokens[at - GRAM..at]);
            self.next[bucket] = u32::try_from(at).expect("a position is under the context");
        }
        self.indexed = self.indexed.max(len);
        let Some(start) = len.checked_sub(GRAM) else {
            return true;
        };
        let last = &tokens[start..];
        let at = self.next[self.bucket(last)] as usize;
        if at != 0 && tokens[at - GRAM..at] == *last {
            let period = len - at;
            out.extend((0..count).map(|i| tokens[at + i % period]));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafted(lookup: &mut Lookup, tokens: &[u32], count: usize) -> Vec<u32> {
        let mut out = Vec::new();
        lookup.draft(tokens, count, &mut out);
        out
    }

    #[test]
    fn what_followed_the_last_time_is_guessed() {
        let mut lookup = Lookup::with_capacity(64);
        for short in [&[][..], &[1], &[1, 2], &[1, 2, 3]] {
            assert!(drafted(&mut lookup, short, 4).is_empty());
        }
        let mut tokens = vec![1, 2, 3, 4, 5, 6, 9, 1, 2, 3];
        assert_eq!(drafted(&mut lookup, &tokens, 3), [4, 5, 6]);
        // Behind the end it goes on as it did: seven tokens are said to come again and again.
        assert_eq!(
            drafted(&mut lookup, &tokens, 9),
            [4, 5, 6, 9, 1, 2, 3, 4, 5]
        );
        tokens.extend([7, 8, 1, 2, 3]);
        assert_eq!(
            drafted(&mut lookup, &tokens, 2),
            [7, 8],
            "the last time counts"
        );
        tokens.extend([1, 3]);
        assert!(drafted(&mut lookup, &tokens, 2).is_empty());
        tokens.extend([3, 3]);
        let end = drafted(&mut lookup, &tokens, 2);
        assert!(end.is_empty(), "that is the end itself");
        tokens.push(3);
        assert_eq!(drafted(&mut lookup, &tokens, 2), [3, 3]);
    }

    /// Tokens whose hashes meet are told apart.
    #[test]
    fn a_small_index_guesses_nothing_wrong() {
        let mut lookup = Lookup::with_capacity(1);
        let tokens: Vec<u32> = (0..200).collect();
        for len in 0..tokens.len() {
            assert!(drafted(&mut lookup, &tokens[..len], 2).is_empty());
        }
    }
}
