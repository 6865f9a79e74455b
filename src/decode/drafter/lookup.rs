//! Prompt lookup: drafts the tokens that followed an earlier occurrence of the last tokens.
//!
//! Based on Saxena, "Prompt Lookup Decoding" (2023), with a hash index instead of a search.

use super::DraftSource;

/// Number of tokens that must match.
const GRAM: usize = 3;

/// Index of the last occurrence of every n-gram of a sequence.
#[derive(Debug)]
pub(in crate::decode) struct Lookup {
    /// Position after the n-gram with this hash; 0 if there is none.
    next: Vec<u32>,
    /// Number of indexed tokens.
    indexed: usize,
}

impl Lookup {
    /// Creates an index for a sequence of at most `tokens` tokens.
    pub(in crate::decode) fn with_capacity(tokens: usize) -> Self {
        Self {
            next: vec![0; (2 * tokens).next_power_of_two()],
            indexed: GRAM,
        }
    }

    fn bucket(&self, gram: &[u32]) -> usize {
        let mix = |hash: u64, token: &u32| {
            // Multiplier of Knuth's linear congruential generator (MMIX).
            (hash ^ u64::from(*token)).wrapping_mul(6_364_136_223_846_793_005)
        };
        let hash = gram.iter().fold(0, mix) >> u32::BITS;
        usize::try_from(hash).expect("32 bits") & (self.next.len() - 1)
    }
}

impl DraftSource for Lookup {
    /// Drafts the `count` tokens that followed the last occurrence. A draft that reaches the end of
    /// the sequence repeats periodically.
    fn draft(&mut self, tokens: &[u32], count: usize, out: &mut Vec<u32>) -> bool {
        let len = tokens.len();
        for at in self.indexed..len {
            let bucket = self.bucket(&tokens[at - GRAM..at]);
            self.next[bucket] = u32::try_from(at).expect("positions are less than the context");
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
    fn drafts_tokens_after_last_occurrence() {
        let mut lookup = Lookup::with_capacity(64);
        for short in [&[][..], &[1], &[1, 2], &[1, 2, 3]] {
            assert!(drafted(&mut lookup, short, 4).is_empty());
        }
        let mut tokens = vec![1, 2, 3, 4, 5, 6, 9, 1, 2, 3];
        assert_eq!(drafted(&mut lookup, &tokens, 3), [4, 5, 6]);
        // The draft repeats after the end of the sequence, with a period of seven tokens.
        assert_eq!(
            drafted(&mut lookup, &tokens, 9),
            [4, 5, 6, 9, 1, 2, 3, 4, 5]
        );
        tokens.extend([7, 8, 1, 2, 3]);
        assert_eq!(
            drafted(&mut lookup, &tokens, 2),
            [7, 8],
            "the last occurrence is used"
        );
        tokens.extend([1, 3]);
        assert!(drafted(&mut lookup, &tokens, 2).is_empty());
        tokens.extend([3, 3]);
        let end = drafted(&mut lookup, &tokens, 2);
        assert!(end.is_empty(), "the only match is the end itself");
        tokens.push(3);
        assert_eq!(drafted(&mut lookup, &tokens, 2), [3, 3]);
    }

    /// Hash collisions are detected by comparing the tokens.
    #[test]
    fn hash_collisions_produce_no_drafts() {
        let mut lookup = Lookup::with_capacity(1);
        let tokens: Vec<u32> = (0..200).collect();
        for len in 0..tokens.len() {
            assert!(drafted(&mut lookup, &tokens[..len], 2).is_empty());
        }
    }
}
