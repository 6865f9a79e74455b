//! Lists of merges: from a pair of adjacent tokens to its rank and the resulting token.

use super::array::{Array, Section};
use super::hash::{Entries, NumberTable, Seed, WideTable, is_same};
use super::index::Index;
use parking_lot::Mutex;
use tabla_core::error::{Context, Result, bail};
use tabla_core::reserve;

/// A list of merges, best first.
#[derive(Debug)]
pub(super) struct MergeTable {
    /// Ids of both parts and of the result, by rank.
    pub(super) merges: Array<[u32; 3]>,
    /// Ranks by parts. A merge is found through `merges`, which keeps this table small.
    pub(super) ranks: NumberTable,
}

/// A list of merges as in a file, best first.
#[derive(Debug)]
pub(super) enum MergeList<'a> {
    /// Two parts.
    Pairs(Vec<(&'a str, &'a str)>),
    /// Two parts with a space between them.
    Joined(&'a [&'a str]),
}

impl<'a> MergeList<'a> {
    fn len(&self) -> usize {
        match self {
            Self::Pairs(pairs) => pairs.len(),
            Self::Joined(merges) => merges.len(),
        }
    }

    /// Returns the parts of merge `rank`.
    fn parts(&self, rank: usize) -> Result<(&'a str, &'a str)> {
        match self {
            Self::Pairs(pairs) => Ok(pairs[rank]),
            Self::Joined(merges) => split_merge(merges[rank]),
        }
    }
}

/// Ids of a merge with a part or a result that is not a token.
const UNKNOWN: [u32; 3] = [u32::MAX; 3];

impl MergeTable {
    /// Looks up a list of merges. Both parts and the result must be tokens.
    ///
    /// A merge with a part that `is_control` accepts is dropped, so that text never becomes a
    /// control token.
    pub(super) fn new(
        (index, table): (&Index, &WideTable),
        merges: &MergeList<'_>,
        is_control: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let mut ids = ids((index, table), merges);
        for (rank, _) in ids.iter().enumerate().filter(|(_, ids)| **ids == UNKNOWN) {
            let parts = merges.parts(rank).context(format_args!("merge {rank}"))?;
            check_dropped(index, rank, parts, &is_control)?;
        }
        let pair = |rank: u32| {
            let [left, right, _] = ids[rank as usize];
            [left, right]
        };
        let ranks = Entries {
            count: ids.len(),
            numbers: || {
                let known = (0..).zip(&ids).filter(|(_, ids)| **ids != UNKNOWN);
                known.map(|(rank, _)| rank)
            },
            hash: |seed: Seed, rank| seed.hash_pair(pair(rank)),
            is_same: |a, b| pair(a) == pair(b),
        }
        .table()?;
        // Dropped merges have no entry in `ranks`.
        for ids in ids.iter_mut().filter(|ids| **ids == UNKNOWN) {
            *ids = [0; 3];
        }
        let merges = ids.into();
        Ok(Self { merges, ranks })
    }

    /// Uses the list in two sections, for a vocabulary of `tokens` tokens. `seed` is that of the ranks.
    ///
    /// # Errors
    /// `Format` for a list with other ids, or an invalid table of ranks.
    pub(super) fn stored(
        merges: Section,
        (seed, ranks): (Seed, Section),
        tokens: usize,
    ) -> Result<Self> {
        let merges = Array::<[u32; 3]>::shared(merges)?;
        let ids = merges.as_flattened().iter().copied();
        if ids.fold(0, u32::max) as usize >= tokens {
            bail!(Format, "a merge has an id that is not in the vocabulary");
        }
        let ranks = NumberTable::stored(seed, ranks, merges.len())?;
        Ok(Self { merges, ranks })
    }

    /// Returns the rank and the resulting id of a pair of ids.
    #[inline]
    pub(super) fn get(&self, pair: [u32; 2]) -> Option<(u32, u32)> {
        let merges = &*self.merges;
        let is_same = |rank: u32| {
            let merge = merges.get(rank as usize);
            merge.is_some_and(|[left, right, _]| [*left, *right] == pair)
        };
        let hash = self.ranks.seed.hash_pair(pair);
        let rank = self.ranks.find(hash, is_same)?;
        Some((rank, merges.get(rank as usize)?[2]))
    }

    /// Returns the size of both tables in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.merges.memory_bytes() + self.ranks.slots.memory_bytes()
    }
}

/// Returns an error unless merge `rank`, with an unknown part or result, has a control token.
fn check_dropped(
    index: &Index,
    rank: usize,
    (left, right): (&str, &str),
    is_control: impl Fn(&str) -> bool,
) -> Result<()> {
    let parts = [left, right, &[left, right].concat()];
    if parts.iter().any(|part| is_control(part)) {
        return Ok(());
    }
    let missing = parts.iter().find(|part| index.get(part).is_none());
    bail!(
        Tokenizer,
        "merge {rank}: {:?}: {:?} is not in the vocabulary",
        format!("{left} {right}"),
        missing.unwrap_or(&left)
    );
}

/// Looks up the ids of the parts and the result of each merge. Uses several threads, because there
/// may be hundreds of thousands of merges.
fn ids((index, table): (&Index, &WideTable), merges: &MergeList<'_>) -> Vec<[u32; 3]> {
    /// Minimum number of merges per thread.
    const CHUNK_MIN: usize = 16 << 10;
    let mut ids = vec![[0; 3]; merges.len()];
    let mut is_indexed = vec![false; index.len()];
    for id in index.ids() {
        is_indexed[id as usize] = true;
    }
    let threads = reserve::threads(0);
    let chunk = merges.len().div_ceil(threads).max(CHUNK_MIN);
    let chunks = Mutex::new((0..).step_by(chunk).zip(ids.chunks_mut(chunk)));
    let next = || chunks.lock().next();
    std::thread::scope(|scope| {
        let work = || {
            while let Some((first, ids)) = next() {
                look_up((index, table), &is_indexed, (merges, first), ids);
            }
        };
        for _ in 1..merges.len().div_ceil(chunk) {
            // If a thread cannot be started, the others do its work.
            let thread = reserve::thread("tabla-merges");
            let _ = thread.and_then(|thread| thread.spawn_scoped(scope, work));
        }
        work();
    });
    ids
}

/// Looks up the ids of merges from rank `first` on. `is_indexed` has a flag for each id.
fn look_up(
    (index, table): (&Index, &WideTable),
    is_indexed: &[bool],
    (merges, first): (&MergeList<'_>, usize),
    ids: &mut [[u32; 3]],
) {
    let mut text = String::new();
    let mut last = 0;
    for (rank, ids) in (first..).zip(ids) {
        *ids = UNKNOWN;
        let Ok((left, right)) = merges.parts(rank) else {
            continue;
        };
        // Most lists have the results in the order of ids, so that the text of the expected id is compared instead.
        let is_result = |id: &u32| {
            let parts = index.bytes(*id).split_at_checked(left.len());
            let is_joined = parts.is_some_and(|(start, end)| {
                is_same(end, right.as_bytes()) && is_same(start, left.as_bytes())
            });
            is_joined && is_indexed.get(*id as usize) == Some(&true)
        };
        let expected = [last, last + 1].into_iter().find(is_result);
        let result = expected.or_else(|| {
            text.clear();
            text.extend([left, right]);
            table.get(text.as_bytes())
        });
        if let (Some(left), Some(right), Some(result)) = (
            table.get(left.as_bytes()),
            table.get(right.as_bytes()),
            result,
        ) {
            *ids = [left, right, result];
        }
        last = result.unwrap_or(last);
    }
}

/// Splits a merge at the space between its two parts.
pub(super) fn split_merge(merge: &str) -> Result<(&str, &str)> {
    // The left part may start with a space.
    let after_first = merge.chars().next().map_or(0, char::len_utf8);
    let space = merge[after_first..].find(' ').map(|at| at + after_first);
    match space.map(|at| (&merge[..at], &merge[at + 1..])) {
        Some(parts) => Ok(parts),
        None => bail!(
            Tokenizer,
            "expected two parts with a space between them, got {merge:?}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pieces::StringTable;
    use super::*;

    fn merges(
        tokens: &[&str],
        merges: &[(&str, &str)],
        is_control: fn(&str) -> bool,
    ) -> Result<MergeTable> {
        let texts = StringTable::from_strings(tokens.iter().copied(), 9).unwrap();
        let (index, table) = Index::new(texts, |id| !is_control(tokens[id as usize])).unwrap();
        MergeTable::new(
            (&index, &table),
            &MergeList::Pairs(merges.to_vec()),
            is_control,
        )
    }

    #[test]
    fn first_of_duplicate_merges_wins() {
        let list = [("a", "b"), ("ab", "b"), ("a", "b")];
        let table = merges(&["a", "b", "ab", "abb"], &list, |_| false).unwrap();
        assert_eq!(table.get([0, 1]), Some((0, 2)));
        assert_eq!(table.get([2, 1]), Some((1, 3)));
        assert_eq!(table.get([1, 0]), None);
    }

    #[test]
    fn merges_with_control_tokens_are_dropped() {
        let (tokens, list) = (["a", "b", "ab", "<s>"], [("<s>", "a"), ("a", "b")]);
        let table = merges(&tokens, &list, |text| text == "<s>").unwrap();
        assert_eq!(table.get([0, 1]), Some((1, 2)));
        let error = merges(&tokens[..3], &list, |_| false).unwrap_err();
        assert_eq!(
            error.message(),
            r#"merge 0: "<s> a": "<s>" is not in the vocabulary"#
        );
    }

    /// Compares the results in every order with those of the whole vocabulary.
    #[test]
    fn results_have_any_order_and_duplicates_the_first_id() {
        let tokens = ["b", "ab", "a", "abb", "ab", "abab", "abb"];
        let list = [("a", "b"), ("ab", "ab"), ("ab", "b"), ("a", "b")];
        let table = merges(&tokens, &list, |_| false).unwrap();
        let all = [[2, 0], [1, 1], [1, 0], [4, 0]].map(|pair| table.get(pair));
        assert_eq!(all, [Some((0, 1)), Some((1, 5)), Some((2, 3)), None]);
    }

    #[test]
    fn left_part_of_merge_may_start_with_space() {
        assert_eq!(split_merge("a b").unwrap(), ("a", "b"));
        assert_eq!(split_merge("  b").unwrap(), (" ", "b"));
        assert_eq!(split_merge("a  b").unwrap(), ("a", " b"));
        assert!(split_merge("ab").is_err() && split_merge("").is_err());
    }
}
