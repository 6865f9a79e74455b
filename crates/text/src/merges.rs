//! Lists of merges: from a pair of adjacent tokens to its rank and the resulting token.

use super::index::Index;
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;
use std::hash::BuildHasher as _;
use tabla_core::error::{Result, bail};

/// A list of merges, best first.
#[derive(Debug)]
pub(super) struct MergeTable {
    /// Ids of both parts and of the result, by rank.
    merges: Vec<[u32; 3]>,
    /// Ranks by parts. A merge is found through `merges`, which keeps this table small.
    ranks: HashTable<u32>,
    /// Randomly seeded, so that a file cannot cause collisions.
    hasher: DefaultHashBuilder,
}

/// Ids of a merge with a part or a result that is not a token.
const UNKNOWN: [u32; 3] = [u32::MAX; 3];

impl MergeTable {
    /// Looks up a list of merges. Both parts and the result must be tokens.
    ///
    /// A merge with a part that `is_control` accepts is dropped, so that text never becomes a
    /// control token.
    pub(super) fn new(
        index: &Index,
        merges: &[(&str, &str)],
        is_control: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        let mut table = Self {
            merges: ids(index, merges),
            ranks: HashTable::with_capacity(merges.len()),
            hasher: DefaultHashBuilder::default(),
        };
        for ((rank, ids), parts) in (0..).zip(&table.merges).zip(merges) {
            if *ids == UNKNOWN {
                check_dropped(index, rank, *parts, &is_control)?;
                continue;
            }
            let pair = |rank: u32| pair(table.merges[rank as usize]);
            let hash = |rank: &u32| table.hasher.hash_one(pair(*rank));
            let same = |other: &u32| pair(*other) == pair(rank);
            let entry = table.ranks.entry(hash(&rank), same, hash);
            // The first of duplicates wins.
            entry.or_insert(rank);
        }
        Ok(table)
    }

    /// Returns the rank and the resulting id of a pair of ids.
    pub(super) fn get(&self, [left, right]: [u32; 2]) -> Option<(u32, u32)> {
        let key = pair([left, right, 0]);
        let same = |rank: &u32| pair(self.merges[*rank as usize]) == key;
        let rank = *self.ranks.find(self.hasher.hash_one(key), same)?;
        Some((rank, self.merges[rank as usize][2]))
    }

    /// Returns the size of both tables in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<[u32; 3]>() * self.merges.capacity() + self.ranks.allocation_size()
    }
}

/// The parts of a merge as a key.
fn pair([left, right, _]: [u32; 3]) -> u64 {
    u64::from(left) << u32::BITS | u64::from(right)
}

/// Returns an error unless merge `rank`, with an unknown part or result, has a control token.
fn check_dropped(
    index: &Index,
    rank: u32,
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
fn ids(index: &Index, merges: &[(&str, &str)]) -> Vec<[u32; 3]> {
    /// Minimum number of merges per thread.
    const CHUNK_MIN: usize = 16 << 10;
    let mut ids = vec![[0; 3]; merges.len()];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let chunk = merges.len().div_ceil(threads).max(CHUNK_MIN);
    let chunks = Mutex::new(merges.chunks(chunk).zip(ids.chunks_mut(chunk)));
    let next = || chunks.lock().next();
    std::thread::scope(|scope| {
        let work = || {
            while let Some((merges, ids)) = next() {
                look_up(index, merges, ids);
            }
        };
        for _ in 1..merges.len().div_ceil(chunk) {
            // If a thread cannot be started, the others do its work.
            let thread = std::thread::Builder::new().name("tabla-merges".to_string());
            let _ = thread.spawn_scoped(scope, work);
        }
        work();
    });
    ids
}

/// Looks up the ids of some merges.
fn look_up(index: &Index, merges: &[(&str, &str)], ids: &mut [[u32; 3]]) {
    let mut result = String::new();
    for ((left, right), ids) in merges.iter().zip(ids) {
        result.clear();
        result.extend([*left, right]);
        let found = [left, right, result.as_str()].map(|part| index.get(part));
        *ids = match found {
            [Some(left), Some(right), Some(result)] => [left, right, result],
            _ => UNKNOWN,
        };
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

    #[test]
    fn first_of_duplicate_merges_wins() {
        let tokens = StringTable::from_strings(["a", "b", "ab", "abb"], 9).unwrap();
        let index = Index::new(tokens, |_| true);
        let merges = [("a", "b"), ("ab", "b"), ("a", "b")];
        let table = MergeTable::new(&index, &merges, |_| false).unwrap();
        assert_eq!(table.get([0, 1]), Some((0, 2)));
        assert_eq!(table.get([2, 1]), Some((1, 3)));
        assert_eq!(table.get([1, 0]), None);
    }

    #[test]
    fn merges_with_control_tokens_are_dropped() {
        let tokens = StringTable::from_strings(["a", "b", "ab", "<s>"], 9).unwrap();
        let index = Index::new(tokens, |id| id != 3);
        let merges = [("<s>", "a"), ("a", "b")];
        let table = MergeTable::new(&index, &merges, |text| text == "<s>").unwrap();
        assert_eq!(table.get([0, 1]), Some((1, 2)));
        let error = MergeTable::new(&index, &merges, |_| false).unwrap_err();
        assert_eq!(
            error.message(),
            r#"merge 0: "<s> a": "<s>" is not in the vocabulary"#
        );
    }

    #[test]
    fn left_part_of_merge_may_start_with_space() {
        assert_eq!(split_merge("a b").unwrap(), ("a", "b"));
        assert_eq!(split_merge("  b").unwrap(), (" ", "b"));
        assert_eq!(split_merge("a  b").unwrap(), ("a", " b"));
        assert!(split_merge("ab").is_err() && split_merge("").is_err());
    }
}
