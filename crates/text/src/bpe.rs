//! Byte pair encoding: merges adjacent symbols, best pair first, until no merge applies.
//!
//! Sennrich et al. 2016. The best pair is determined by a list of merges (GPT-2 and successors) or
//! by the score of the merged token (`SentencePiece`).

use super::array::Array;
use super::bytelevel;
use super::fallback::Fallback;
use super::index::Index;
use super::merges::MergeTable;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tabla_core::error::{Result, bail};

/// Maximum word length in bytes. Merging needs about a hundred bytes of memory per byte.
const WORD_BYTES_MAX: usize = 4 << 20;

/// Id of a symbol that is not in the vocabulary, and index of a missing neighbour.
const NONE: u32 = u32::MAX;

/// A BPE model.
#[derive(Debug)]
pub(super) struct Bpe {
    pub(super) index: Index,
    /// Id of each byte if merging starts from bytes; `None` if it starts from characters.
    pub(super) bytes: Option<Box<[u32; 256]>>,
    pub(super) ranking: Ranking,
    pub(super) ignore_merges: IgnoreMerges,
    pub(super) fallback: Fallback,
}

/// Order in which pairs are merged.
#[derive(Debug)]
pub(super) enum Ranking {
    /// By position in the list of merges.
    Merges(MergeTable),
    /// By the score of the resulting token, indexed by id.
    Scores(Array<f64>),
}

/// Whether a word that is in the vocabulary bypasses the merges (`ignore_merges`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IgnoreMerges {
    /// Words are always merged.
    Never,
    /// A word in the vocabulary becomes its token.
    Always,
    /// A word in the vocabulary that starts with a newline becomes its token.
    Newlines,
}

/// Symbols that merging starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Alphabet {
    /// Bytes, in the alphabet of [`bytelevel`].
    Bytes,
    /// Characters.
    Characters,
}

/// Buffers for merging, reused across words.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    /// Min-heap by rank, then position.
    pairs: BinaryHeap<Reverse<Pair>>,
}

/// A part of the word, in a doubly linked list.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    id: u32,
    /// Byte range in the word; empty after it was merged into the previous symbol.
    start: u32,
    end: u32,
    prev: u32,
    next: u32,
}

/// Two adjacent symbols that can be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    rank: u32,
    left: u32,
    /// End of the right symbol; if it has changed, the pair is outdated.
    end: u32,
    id: u32,
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).expect("words have at most 4 MiB")
}

impl Bpe {
    /// Creates a model.
    pub(super) fn new(
        index: Index,
        alphabet: Alphabet,
        ranking: Ranking,
        ignore_merges: IgnoreMerges,
        fallback: Fallback,
    ) -> Self {
        let symbol = |c: char| index.get(c.encode_utf8(&mut [0; 4])).unwrap_or(NONE);
        let bytes = (alphabet == Alphabet::Bytes).then(|| Box::new(bytelevel::CHARS.map(symbol)));
        Self {
            index,
            bytes,
            ranking,
            ignore_merges,
            fallback,
        }
    }

    /// Returns the size of the tables in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let ranking = match &self.ranking {
            Ranking::Merges(merges) => merges.memory_bytes(),
            Ranking::Scores(scores) => scores.memory_bytes(),
        };
        self.index.memory_bytes() + ranking
    }

    /// Appends the ids of a word.
    pub(super) fn encode(
        &self,
        word: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        if word.len() > WORD_BYTES_MAX {
            let bytes = word.len();
            bail!(
                TooLarge,
                "a word of {bytes} bytes exceeds the limit of {WORD_BYTES_MAX}"
            );
        }
        if let Some(id) = self.unmerged(word) {
            out.push(id);
            return Ok(());
        }
        self.symbols(word, &mut scratch.symbols);
        self.merge(word, scratch);
        let alive = scratch.symbols.iter().filter(|s| s.start < s.end);
        let parts = alive.map(|s| {
            let text = word.get(s.start as usize..s.end as usize);
            ((s.id != NONE).then_some(s.id), text.unwrap_or(word))
        });
        self.fallback.write(parts, out)
    }

    /// Returns the token of a word that bypasses the merges.
    fn unmerged(&self, word: &str) -> Option<u32> {
        let ignores_merges = match self.ignore_merges {
            IgnoreMerges::Never => false,
            IgnoreMerges::Always => true,
            IgnoreMerges::Newlines => word.starts_with('\n'),
        };
        if !ignores_merges {
            None
        } else if self.bytes.is_some() {
            self.index.get(&bytelevel::encode(word.as_bytes()))
        } else {
            self.index.get(word)
        }
    }

    fn symbols(&self, word: &str, symbols: &mut Vec<Symbol>) {
        symbols.clear();
        let mut push = |start: usize, end: usize, id: u32| {
            let n = symbols.len();
            symbols.push(Symbol {
                id,
                start: to_u32(start),
                end: to_u32(end),
                prev: n.checked_sub(1).map_or(NONE, to_u32),
                next: to_u32(n + 1),
            });
        };
        if let Some(ids) = &self.bytes {
            for (at, byte) in word.bytes().enumerate() {
                push(at, at + 1, ids[usize::from(byte)]);
            }
        } else {
            for (at, c) in word.char_indices() {
                let end = at + c.len_utf8();
                push(at, end, self.index.get(&word[at..end]).unwrap_or(NONE));
            }
        }
        if let Some(last) = symbols.last_mut() {
            last.next = NONE;
        }
    }

    /// Merges the best pair, the leftmost of equal ones, until there is none.
    fn merge(&self, word: &str, scratch: &mut Scratch) {
        let Scratch { symbols, pairs } = scratch;
        pairs.clear();
        for left in 1..symbols.len() {
            pairs.extend(self.pair(word, symbols, to_u32(left - 1)).map(Reverse));
        }
        while let Some(Reverse(pair)) = pairs.pop() {
            let left = symbols[pair.left as usize];
            let Some(&right) = symbols.get(left.next as usize) else {
                continue;
            };
            if left.start == left.end || right.end != pair.end {
                continue;
            }
            symbols[left.next as usize].start = right.end;
            let joined = &mut symbols[pair.left as usize];
            (joined.id, joined.end, joined.next) = (pair.id, right.end, right.next);
            if let Some(next) = symbols.get_mut(right.next as usize) {
                next.prev = pair.left;
            }
            for place in [left.prev, pair.left] {
                pairs.extend(self.pair(word, symbols, place).map(Reverse));
            }
        }
    }

    /// Returns the pair of the symbol at `place` and the next one if they can be merged.
    fn pair(&self, word: &str, symbols: &[Symbol], place: u32) -> Option<Pair> {
        let left = symbols.get(place as usize)?;
        let right = symbols.get(left.next as usize)?;
        let (rank, id) = match &self.ranking {
            Ranking::Merges(merges) => merges.get([left.id, right.id])?,
            Ranking::Scores(scores) => {
                let range = left.start as usize..right.end as usize;
                let id = match &self.bytes {
                    Some(_) => self
                        .index
                        .get(&bytelevel::encode(&word.as_bytes()[range]))?,
                    None => self.index.get(word.get(range)?)?,
                };
                (descending(*scores.get(id as usize)?), id)
            }
        };
        Some(Pair {
            rank,
            left: place,
            end: right.end,
            id,
        })
    }
}

/// Returns a key that sorts scores in descending order.
#[expect(
    clippy::cast_possible_truncation,
    reason = "merge scores are small integers"
)]
fn descending(score: f64) -> u32 {
    // Total order of IEEE 754 floats as integers: invert negative ones, set the sign bit of others.
    let bits = (score as f32).to_bits();
    let ascending = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::super::hash::WideTable;
    use super::super::merges::MergeList;
    use super::super::pieces::StringTable;
    use super::*;

    fn encode(bpe: &Bpe, word: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        bpe.encode(word, &mut Scratch::default(), &mut ids).unwrap();
        ids
    }

    fn index(tokens: &[&str]) -> (Index, WideTable) {
        let texts = StringTable::from_strings(tokens.iter().copied(), 9).unwrap();
        Index::new(texts, |_| true).unwrap()
    }

    fn bpe_with_merges(tokens: &[&str], merges: &[(&str, &str)]) -> Bpe {
        let (index, table) = index(tokens);
        let merges = MergeList::Pairs(merges.to_vec());
        let merges = MergeTable::new((&index, &table), &merges, |_| false).unwrap();
        let ranking = Ranking::Merges(merges);
        let ignore = IgnoreMerges::Never;
        let fallback = Fallback::default();
        Bpe::new(index, Alphabet::Characters, ranking, ignore, fallback)
    }

    #[test]
    fn merges_best_pair_first_and_leftmost_of_equal_pairs() {
        let bpe = bpe_with_merges(
            &["a", "b", "ab", "ba", "aa", "aba"],
            &[("a", "a"), ("b", "a"), ("a", "b"), ("ab", "a")],
        );
        assert_eq!(encode(&bpe, "aaa"), [4, 0]);
        assert_eq!(encode(&bpe, "aba"), [0, 3]);
        assert_eq!(encode(&bpe, "abab"), [0, 3, 1]);
        assert_eq!(encode(&bpe, ""), [0; 0]);
    }

    #[test]
    fn merges_pair_with_best_score() {
        let (index, _) = index(&["a", "b", "ab", "ba", "abab"]);
        let ranking = Ranking::Scores(vec![0., 0., -2., -1., 0.].into());
        let ignore = IgnoreMerges::Never;
        let bpe = Bpe::new(
            index,
            Alphabet::Characters,
            ranking,
            ignore,
            Fallback::default(),
        );
        assert_eq!(encode(&bpe, "abab"), [0, 3, 1]);
        assert_eq!(encode(&bpe, "abb"), [2, 1]);
    }

    #[test]
    fn merges_long_words_in_linear_time() {
        let bpe = bpe_with_merges(&["a", "aa", "aaaa"], &[("a", "a"), ("aa", "aa")]);
        assert_eq!(encode(&bpe, &"a".repeat(1 << 20)).len(), 1 << 18);
        let long = "a".repeat(WORD_BYTES_MAX + 1);
        let error = bpe.encode(&long, &mut Scratch::default(), &mut vec![]);
        assert_eq!(
            error.unwrap_err().kind(),
            tabla_core::error::ErrorKind::TooLarge
        );
    }

    #[test]
    fn higher_scores_sort_first() {
        let mut scores = [-1.0, 0.0, f64::NEG_INFINITY, 3.0, -0.5];
        scores.sort_unstable_by_key(|&s| descending(s));
        assert_eq!(scores, [3.0, 0.0, -0.5, -1.0, f64::NEG_INFINITY]);
    }
}
