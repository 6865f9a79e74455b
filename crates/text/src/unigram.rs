//! Unigram: of all ways to write a word in tokens, the one with the best sum of scores.
//!
//! Kudo 2018, found as `SentencePiece` finds it: place by place, the best way to reach each.

use super::fallback::Fallback;
use super::index::Index;
use tabla_core::error::{Result, bail};

/// The longest stretch that is written as one: bounds memory to some dozen bytes for each of its bytes.
const WORD_BYTES_MAX: usize = 4 << 20;
/// How much worse than the worst token an unknown character is.
const UNK_PENALTY: f64 = 10.0;

/// Tokens with their scores.
#[derive(Debug)]
pub(super) struct Unigram {
    index: Index,
    /// Ids in the order of their spelling, for tokens that begin at a place.
    sorted: Vec<u32>,
    /// Where the spellings with each first byte begin in `sorted`; one more for the end.
    firsts: Vec<usize>,
    /// A logarithm of the likelihood, for each id.
    scores: Vec<f64>,
    unk_score: f64,
    fallback: Fallback,
}

/// The best way to reach a place of the word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    score: f64,
    from: usize,
    /// The last token, or none for an unknown character.
    id: Option<u32>,
}

impl Unigram {
    /// Scores stand for each id of the index.
    pub(super) fn new(index: Index, scores: Vec<f64>, fallback: Fallback) -> Self {
        let mut sorted: Vec<u32> = index.ids().collect();
        sorted.sort_unstable_by_key(|&id| index.bytes(id));
        let first = |id: u32| usize::from(index.bytes(id)[0]);
        let firsts = (0..=256).map(|byte| sorted.partition_point(|&id| first(id) < byte));
        let worst = sorted.iter().map(|&id| scores[id as usize]);
        Self {
            firsts: firsts.collect(),
            unk_score: worst.fold(0.0, f64::min) - UNK_PENALTY,
            index,
            sorted,
            scores,
            fallback,
        }
    }

    /// Appends the ids of a word.
    pub(super) fn encode(
        &self,
        word: &str,
        best: &mut Vec<Reached>,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        if word.len() > WORD_BYTES_MAX {
            let bytes = word.len();
            bail!(
                TooLarge,
                "a word of {bytes} bytes is over the limit of {WORD_BYTES_MAX}"
            );
        }
        let nowhere = Reached {
            score: f64::NEG_INFINITY,
            from: 0,
            id: None,
        };
        best.clear();
        best.resize(word.len() + 1, nowhere);
        best[0].score = 0.0;
        for (at, c) in word.char_indices() {
            let here = best[at].score;
            let mut reach = |end: usize, score: f64, id: Option<u32>| {
                if here + score > best[end].score {
                    let score = here + score;
                    best[end] = Reached {
                        score,
                        from: at,
                        id,
                    };
                }
            };
            let mut is_known = false;
            self.each_prefix(&word.as_bytes()[at..], |id, length| {
                is_known |= length == c.len_utf8();
                reach(at + length, self.scores[id as usize], Some(id));
            });
            if !is_known {
                reach(at + c.len_utf8(), self.unk_score, None);
            }
        }
        // From the end to the start, and turned around.
        let mut way = Vec::new();
        let mut end = word.len();
        while end > 0 {
            let Reached { from, id, .. } = best[end];
            way.push((id, &word[from..end]));
            end = from;
        }
        self.fallback.write(way.into_iter().rev(), out)
    }

    /// Each token that begins the text, shortest first, with its length.
    fn each_prefix(&self, text: &[u8], mut found: impl FnMut(u32, usize)) {
        let Some(&first) = text.first() else { return };
        let first = usize::from(first);
        let mut range = &self.sorted[self.firsts[first]..self.firsts[first + 1]];
        for length in 1..=text.len() {
            // All of the range begin with the bytes so far; one that is no longer stands first.
            let Some(&id) = range.first() else { return };
            if self.index.bytes(id).len() == length {
                found(id, length);
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

#[cfg(test)]
mod tests {
    use super::super::pieces::Blob;
    use super::*;

    #[test]
    fn the_best_sum_wins() {
        let tokens = ["<unk>", "a", "b", "ab", "abc", "c", "日"];
        let index = Index::new(Blob::of(tokens, 9).unwrap(), |id| id != 0);
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
