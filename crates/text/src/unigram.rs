//! Unigram: the tokenization of a word with the best sum of scores.
//!
//! Kudo 2018. Viterbi search as in `SentencePiece`.

use super::array::{Array, Section};
use super::fallback::Fallback;
use super::index::Index;
use tabla_core::error::{Result, bail};

/// Maximum word length in bytes. The search needs some dozen bytes of memory per byte.
const WORD_BYTES_MAX: usize = 4 << 20;
/// Difference between the worst token score and the score of an unknown character.
const UNK_PENALTY: f64 = 10.0;

/// A Unigram model.
#[derive(Debug)]
pub(super) struct Unigram {
    pub(super) index: Index,
    /// Ids sorted by token text, for prefix searches.
    pub(super) sorted: Array<u32>,
    /// Start index in `sorted` of the tokens with each first byte, plus the end.
    firsts: Vec<usize>,
    /// Log-probability of each token, by id.
    pub(super) scores: Array<f64>,
    pub(super) unk_score: f64,
    pub(super) fallback: Fallback,
}

/// The best tokenization up to a position of the word.
#[derive(Clone, Copy, Debug)]
pub(super) struct BestTokenization {
    score: f64,
    from: usize,
    /// The last token, `None` for an unknown character.
    id: Option<u32>,
}

impl Unigram {
    /// Creates a model. `scores` has one entry per id.
    pub(super) fn new(index: Index, scores: Vec<f64>, fallback: Fallback) -> Self {
        let mut sorted: Vec<u32> = index.ids().collect();
        sorted.sort_unstable_by_key(|&id| index.bytes(id));
        let worst = sorted.iter().map(|&id| scores[id as usize]);
        Self {
            firsts: firsts(&index, &sorted),
            unk_score: worst.fold(0.0, f64::min) - UNK_PENALTY,
            index,
            sorted: sorted.into(),
            scores: scores.into(),
            fallback,
        }
    }

    /// Uses the ids, sorted by text, and the scores in two sections. Ids in another order only make searches find
    /// other tokens.
    ///
    /// # Errors
    /// `Format` for an id that is not in the vocabulary, or another number of scores.
    pub(super) fn stored(
        index: Index,
        [sorted, scores]: [Section; 2],
        unk_score: f64,
        fallback: Fallback,
    ) -> Result<Self> {
        let (sorted, scores) = (Array::<u32>::shared(sorted)?, Array::<f64>::shared(scores)?);
        let is_valid = |id: &u32| (*id as usize) < index.len();
        if scores.len() != index.len() || !sorted.iter().all(is_valid) {
            bail!(
                Format,
                "the scores or the sorted ids of a vocabulary are invalid"
            );
        }
        Ok(Self {
            firsts: firsts(&index, &sorted),
            index,
            sorted,
            scores,
            unk_score,
            fallback,
        })
    }

    /// Returns the size of the tables in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.sorted.memory_bytes() + self.scores.memory_bytes()
    }

    /// Appends the ids of a word.
    pub(super) fn encode(
        &self,
        word: &str,
        best: &mut Vec<BestTokenization>,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        if word.len() > WORD_BYTES_MAX {
            let bytes = word.len();
            bail!(
                TooLarge,
                "a word of {bytes} bytes exceeds the limit of {WORD_BYTES_MAX}"
            );
        }
        let unreachable = BestTokenization {
            score: f64::NEG_INFINITY,
            from: 0,
            id: None,
        };
        best.clear();
        best.resize(word.len() + 1, unreachable);
        best[0].score = 0.0;
        for (at, c) in word.char_indices() {
            let here = best[at].score;
            let mut relax = |end: usize, score: f64, id: Option<u32>| {
                if here + score > best[end].score {
                    let score = here + score;
                    best[end] = BestTokenization {
                        score,
                        from: at,
                        id,
                    };
                }
            };
            let mut is_known = false;
            self.for_each_prefix(&word.as_bytes()[at..], |id, length| {
                is_known |= length == c.len_utf8();
                relax(at + length, self.scores[id as usize], Some(id));
            });
            if !is_known {
                relax(at + c.len_utf8(), self.unk_score, None);
            }
        }
        // Follow the best path from the end to the start.
        let mut path = Vec::new();
        let mut end = word.len();
        while end > 0 {
            let BestTokenization { from, id, .. } = best[end];
            path.push((id, &word[from..end]));
            end = from;
        }
        self.fallback.write(path.into_iter().rev(), out)
    }

    /// Calls `on_token` with the id and length of each token that is a prefix of the text, shortest
    /// first.
    fn for_each_prefix(&self, text: &[u8], mut on_token: impl FnMut(u32, usize)) {
        let Some(&first) = text.first() else { return };
        let first = usize::from(first);
        let range = self.sorted.get(self.firsts[first]..self.firsts[first + 1]);
        let mut range = range.unwrap_or_default();
        for length in 1..=text.len() {
            // All tokens in the range start with `text[..length]`; one equal to it is the first.
            let Some(&id) = range.first() else { return };
            if self.index.bytes(id).len() == length {
                on_token(id, length);
            }
            let Some(&byte) = text.get(length) else {
                return;
            };
            let next = |id: u32| self.index.bytes(id).get(length).copied();
            let start = range.partition_point(|&id| next(id) < Some(byte));
            range = &range[start..];
            range = &range[..range.partition_point(|&id| next(id) == Some(byte))];
        }
    }
}

/// Returns the first index in `sorted` of the tokens with each first byte, plus the end.
fn firsts(index: &Index, sorted: &[u32]) -> Vec<usize> {
    let first = |id: u32| index.bytes(id).first().map_or(0, |byte| usize::from(*byte));
    let before = |byte| sorted.partition_point(|&id| first(id) < byte);
    (0..=256).map(before).collect()
}

#[cfg(test)]
mod tests {
    use super::super::pieces::StringTable;
    use super::*;

    #[test]
    fn finds_best_sum_of_scores() {
        let tokens = ["<unk>", "a", "b", "ab", "abc", "c", "日"];
        let index = Index::new(StringTable::from_strings(tokens, 9).unwrap(), |id| id != 0)
            .unwrap()
            .0;
        let scores = vec![0., -1., -1., -3., -2., -1., -5.];
        let fallback = Fallback {
            unk: Some(0),
            fuse: true,
            ..Fallback::default()
        };
        let model = Unigram::new(index, scores, fallback);
        let encode = |word: &str| {
            let mut ids = Vec::new();
            model.encode(word, &mut Vec::new(), &mut ids).unwrap();
            ids
        };
        assert_eq!(encode("ab"), [1, 2]);
        assert_eq!(encode("abc"), [4]);
        assert_eq!(encode("xy日a"), [0, 6, 1]);
        assert_eq!(encode("日本abc"), [6, 0, 4]);
        assert_eq!(encode(""), [0; 0]);
    }
}
