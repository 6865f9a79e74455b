//! Byte pair encoding: symbols are joined, best pair first, until no pair is known.
//!
//! Sennrich et al. 2016. Two sources say which pair is best: a list of merges (GPT-2 and its heirs),
//! or the score of what a pair becomes (`SentencePiece`).

use super::bytelevel;
use super::fallback::Fallback;
use super::index::Index;
use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tabla_core::error::{Result, bail};

/// The longest stretch that is merged as one: bounds memory to some hundred bytes for each of its bytes.
const WORD_BYTES_MAX: usize = 4 << 20;

/// A symbol that is in no vocabulary, so far.
const NONE: u32 = u32::MAX;

/// Merges, and what they start from.
#[derive(Debug)]
pub(super) struct Bpe {
    index: Index,
    /// The symbol of each byte, where bytes are what merging starts from; else characters are.
    bytes: Option<Box<[u32; 256]>>,
    ranking: Ranking,
    known_words: KnownWords,
    fallback: Fallback,
}

/// Which pair is joined first.
#[derive(Debug)]
pub(super) enum Ranking {
    /// By place in a list: rank and result of each pair of ids.
    List(HashMap<(u32, u32), (u32, u32)>),
    /// By the score of the result, for each id.
    Scores(Vec<f64>),
}

/// What becomes of a word that is in the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownWords {
    /// Only merges lead to it.
    Merged,
    /// It is taken whole, whatever the merges say.
    Whole,
    /// It is taken whole if it begins with a line end.
    WholeLineEnds,
}

/// How a word is written before merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alphabet {
    /// Each byte is a symbol, spelt as [`bytelevel`] says.
    Bytes,
    /// Each character is a symbol.
    Characters,
}

/// What words are merged in; kept from word to word.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    /// Best first: rank, then place.
    pairs: BinaryHeap<Reverse<Pair>>,
}

/// A stretch of the word, in a chain with its neighbours.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    id: u32,
    /// Bytes of the word; empty if it was joined to the one before.
    start: u32,
    end: u32,
    before: u32,
    after: u32,
}

/// Two neighbours that can be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    rank: u32,
    left: u32,
    /// Where the right one ends; if it no longer does, one of them was joined to another.
    end: u32,
    id: u32,
}

fn number(n: usize) -> u32 {
    u32::try_from(n).expect("words are under 4 MiB")
}

impl Bpe {
    /// Merging by `ranking` of words written in `alphabet`.
    pub(super) fn new(
        index: Index,
        alphabet: Alphabet,
        ranking: Ranking,
        known_words: KnownWords,
        fallback: Fallback,
    ) -> Self {
        let symbol = |c: char| index.get(c.encode_utf8(&mut [0; 4])).unwrap_or(NONE);
        let bytes = (alphabet == Alphabet::Bytes).then(|| Box::new(bytelevel::CHARS.map(symbol)));
        Self {
            index,
            bytes,
            ranking,
            known_words,
            fallback,
        }
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
                "a word of {bytes} bytes is over the limit of {WORD_BYTES_MAX}"
            );
        }
        if let Some(id) = self.whole(word) {
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

    /// A word that is taken as it is.
    fn whole(&self, word: &str) -> Option<u32> {
        let wanted = match self.known_words {
            KnownWords::Merged => false,
            KnownWords::Whole => true,
            KnownWords::WholeLineEnds => word.starts_with('\n'),
        };
        if !wanted {
            None
        } else if self.bytes.is_some() {
            self.index.get(&bytelevel::encode(word))
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
                start: number(start),
                end: number(end),
                before: n.checked_sub(1).map_or(NONE, number),
                after: number(n + 1),
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
            last.after = NONE;
        }
    }

    /// Joins the best pair, the leftmost among equals, until there is none.
    fn merge(&self, word: &str, scratch: &mut Scratch) {
        let Scratch { symbols, pairs } = scratch;
        pairs.clear();
        for left in 1..symbols.len() {
            pairs.extend(self.pair(word, symbols, number(left - 1)).map(Reverse));
        }
        while let Some(Reverse(pair)) = pairs.pop() {
            let left = symbols[pair.left as usize];
            let Some(&right) = symbols.get(left.after as usize) else {
                continue;
            };
            if left.start == left.end || right.end != pair.end {
                continue;
            }
            symbols[left.after as usize].start = right.end;
            let joined = &mut symbols[pair.left as usize];
            (joined.id, joined.end, joined.after) = (pair.id, right.end, right.after);
            if let Some(next) = symbols.get_mut(right.after as usize) {
                next.before = pair.left;
            }
            for place in [left.before, pair.left] {
                pairs.extend(self.pair(word, symbols, place).map(Reverse));
            }
        }
    }

    /// The pair that begins at a symbol, if it can be joined.
    fn pair(&self, word: &str, symbols: &[Symbol], place: u32) -> Option<Pair> {
        let left = symbols.get(place as usize)?;
        let right = symbols.get(left.after as usize)?;
        let (rank, id) = match &self.ranking {
            Ranking::List(pairs) => *pairs.get(&(left.id, right.id))?,
            Ranking::Scores(scores) => {
                let text = word.get(left.start as usize..right.end as usize)?;
                let id = self.index.get(text)?;
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

/// The merges of a list, best first; both parts of each and the result must be tokens.
///
/// Text never becomes markup: a merge with a part that `is_markup` knows is left out.
pub(super) fn ranks<'a>(
    index: &Index,
    merges: &[(&'a str, &'a str)],
    is_markup: impl Fn(&str) -> bool,
) -> Result<Ranking> {
    let mut pairs = HashMap::with_capacity(merges.len());
    for (n, (ids, (left, right))) in ids(index, merges).zip(merges).enumerate() {
        if let [Some(a), Some(b), Some(c)] = ids {
            pairs.entry((a, b)).or_insert((number(n), c));
            continue;
        }
        let parts = [*left, right, &[*left, right].concat()];
        let absent = parts.iter().find(|part| index.get(part).is_none());
        if !parts.iter().any(|part| is_markup(part)) {
            bail!(
                Tokenizer,
                "merge {n}: {:?}: {:?} is not in the vocabulary",
                format!("{left} {right}"),
                absent.unwrap_or(left)
            );
        }
    }
    Ok(Ranking::List(pairs))
}

/// The ids of both parts of each merge and of what it makes, looked up by several threads: there
/// may be hundreds of thousands.
fn ids(index: &Index, merges: &[(&str, &str)]) -> impl Iterator<Item = [Option<u32>; 3]> {
    /// Merges that are worth a thread.
    const SHARE: usize = 16 << 10;
    let look_up = |merges: &[(&str, &str)]| {
        let mut whole = String::new();
        let ids = merges.iter().map(|(left, right)| {
            whole.clear();
            whole.extend([*left, right]);
            [left, right, whole.as_str()].map(|part| index.get(part))
        });
        ids.collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = merges.len().div_ceil(threads).max(SHARE);
    let (mine, others) = merges.split_at(share.min(merges.len()));
    let shares = std::thread::scope(|scope| {
        let spawn = |merges| {
            let thread = std::thread::Builder::new().name("tabla-merges".to_string());
            (merges, thread.spawn_scoped(scope, move || look_up(merges)))
        };
        let others: Vec<_> = others.chunks(share).map(spawn).collect();
        let mut shares = vec![look_up(mine)];
        for (merges, thread) in others {
            // What no thread could be had for is done here.
            let found = thread.ok().and_then(|thread| thread.join().ok());
            shares.push(found.unwrap_or_else(|| look_up(merges)));
        }
        shares
    });
    shares.into_iter().flatten()
}

/// The two parts of a merge that is written with a space between them.
pub(super) fn parts(merge: &str) -> Result<(&str, &str)> {
    // The left part may itself begin with a space.
    let after_first = merge.chars().next().map_or(0, char::len_utf8);
    let space = merge[after_first..].find(' ').map(|at| at + after_first);
    match space.map(|at| (&merge[..at], &merge[at + 1..])) {
        Some(parts) => Ok(parts),
        None => bail!(Tokenizer, "{merge:?} has no space between two parts"),
    }
}

/// A key that sorts scores from high to low.
#[expect(
    clippy::cast_possible_truncation,
    reason = "scores of merges are small whole numbers"
)]
fn descending(score: f64) -> u32 {
    // The order of IEEE 754 as an integer: flip all bits of the negative, the sign of the others.
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
    use super::super::pieces::Blob;
    use super::*;

    fn encode(bpe: &Bpe, word: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        bpe.encode(word, &mut Scratch::default(), &mut ids).unwrap();
        ids
    }

    fn index(tokens: &[&str]) -> Index {
        Index::new(Blob::of(tokens.iter().copied(), 9).unwrap(), |_| true)
    }

    fn by_list(tokens: &[&str], merges: &[(&str, &str)]) -> Bpe {
        let index = index(tokens);
        let ranking = ranks(&index, merges, |_| false).unwrap();
        let known = KnownWords::Merged;
        let fallback = Fallback::default();
        Bpe::new(index, Alphabet::Characters, ranking, known, fallback)
    }

    #[test]
    fn the_best_pair_is_joined_first_and_the_leftmost_of_equals() {
        let bpe = by_list(
            &["a", "b", "ab", "ba", "aa", "aba"],
            &[("a", "a"), ("b", "a"), ("a", "b"), ("ab", "a")],
        );
        assert_eq!(encode(&bpe, "aaa"), [4, 0]);
        assert_eq!(encode(&bpe, "aba"), [0, 3]);
        assert_eq!(encode(&bpe, "abab"), [0, 3, 1]);
        assert_eq!(encode(&bpe, ""), [0; 0]);
    }

    #[test]
    fn scores_join_what_makes_the_best_token() {
        let index = index(&["a", "b", "ab", "ba", "abab"]);
        let ranking = Ranking::Scores(vec![0., 0., -2., -1., 0.]);
        let known = KnownWords::Merged;
        let bpe = Bpe::new(
            index,
            Alphabet::Characters,
            ranking,
            known,
            Fallback::default(),
        );
        assert_eq!(encode(&bpe, "abab"), [0, 3, 1]);
        assert_eq!(encode(&bpe, "abb"), [2, 1]);
    }

    #[test]
    fn long_words_take_no_longer_for_each_byte() {
        let bpe = by_list(&["a", "aa", "aaaa"], &[("a", "a"), ("aa", "aa")]);
        assert_eq!(encode(&bpe, &"a".repeat(1 << 20)).len(), 1 << 18);
        let long = "a".repeat(WORD_BYTES_MAX + 1);
        let error = bpe.encode(&long, &mut Scratch::default(), &mut vec![]);
        assert_eq!(
            error.unwrap_err().kind(),
            tabla_core::error::ErrorKind::TooLarge
        );
    }

    #[test]
    fn the_left_part_of_a_merge_may_begin_with_a_space() {
        assert_eq!(parts("a b").unwrap(), ("a", "b"));
        assert_eq!(parts("  b").unwrap(), (" ", "b"));
        assert_eq!(parts("a  b").unwrap(), ("a", " b"));
        assert!(parts("ab").is_err() && parts("").is_err());
    }

    #[test]
    fn higher_scores_sort_first() {
        let mut scores = [-1.0, 0.0, f64::NEG_INFINITY, 3.0, -0.5];
        scores.sort_unstable_by_key(|&s| descending(s));
        assert_eq!(scores, [3.0, 0.0, -0.5, -1.0, f64::NEG_INFINITY]);
    }
}
