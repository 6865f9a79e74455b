//! Lookup from token text to id: a hash table over one string table.

use super::pieces::StringTable;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher as _;

/// The token texts of a vocabulary, and a hash table of a subset of them.
#[derive(Debug)]
pub(super) struct Index {
    texts: StringTable,
    ids: HashTable<u32>,
    /// Randomly seeded, so that a file cannot cause collisions.
    hasher: DefaultHashBuilder,
}

impl Index {
    /// Indexes the ids that `keep` accepts. The first of duplicates wins; empty texts are skipped.
    pub(super) fn new(texts: StringTable, keep: impl Fn(u32) -> bool) -> Self {
        let hasher = DefaultHashBuilder::default();
        let mut ids = HashTable::with_capacity(texts.len());
        let entries = (0..).zip(texts.iter());
        for (id, text) in entries.filter(|(id, text)| !text.is_empty() && keep(*id)) {
            let hash = |id: &u32| hasher.hash_one(texts.get(*id as usize));
            ids.entry(hash(&id), |other| texts.get(*other as usize) == text, hash)
                .or_insert(id);
        }
        Self { texts, ids, hasher }
    }

    /// Returns the id of a token text.
    pub(super) fn get(&self, text: &str) -> Option<u32> {
        let text = text.as_bytes();
        self.ids
            .find(self.hasher.hash_one(text), |&id| {
                self.texts.get(id as usize) == text
            })
            .copied()
    }

    /// Returns the text of an id.
    pub(super) fn text(&self, id: u32) -> &str {
        self.texts.text(id as usize)
    }

    /// Returns the text of an id as bytes.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize)
    }

    /// Returns the size of both tables in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.texts.memory_bytes() + self.ids.allocation_size()
    }

    /// The indexed ids, in arbitrary order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.ids.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_of_duplicate_texts_wins() {
        let texts = StringTable::from_strings(["a", "b", "a", "", "日本", "c"], 9).unwrap();
        let index = Index::new(texts, |id| id != 5);
        let all = ["a", "b", "", "日本", "c", "日"].map(|text| index.get(text));
        assert_eq!(all, [Some(0), Some(1), None, Some(4), None, None]);
        assert_eq!(index.text(4), "日本");
        assert_eq!(index.ids().count(), 3);
    }
}
