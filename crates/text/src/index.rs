//! From spellings to ids: one block of text, and one flat table over it.

use super::pieces::Blob;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher as _;

/// The spellings of a vocabulary, and those among them that can be looked up.
#[derive(Debug)]
pub(super) struct Index {
    texts: Blob,
    ids: HashTable<u32>,
    /// Seeded anew for each table, so that no file can aim at it.
    hasher: DefaultHashBuilder,
}

impl Index {
    /// Ids whose spelling `keep` accepts; of two with one spelling the first counts, and none is empty.
    pub(super) fn new(texts: Blob, keep: impl Fn(u32) -> bool) -> Self {
        let hasher = DefaultHashBuilder::default();
        let mut ids = HashTable::with_capacity(texts.len());
        let entries = (0..).zip(texts.iter());
        for (id, text) in entries.filter(|(id, text)| !text.is_empty() && keep(*id)) {
            let hash = |id: &u32| hasher.hash_one(texts.get(*id as usize));
            ids.entry(hash(&id), |have| texts.get(*have as usize) == text, hash)
                .or_insert(id);
        }
        Self { texts, ids, hasher }
    }

    /// The id that is spelt so.
    pub(super) fn get(&self, text: &str) -> Option<u32> {
        let text = text.as_bytes();
        self.ids
            .find(self.hasher.hash_one(text), |&id| {
                self.texts.get(id as usize) == text
            })
            .copied()
    }

    /// The spelling of an id.
    pub(super) fn text(&self, id: u32) -> &str {
        self.texts.text(id as usize)
    }

    /// The same as bytes, for searches.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize)
    }

    /// The ids that can be looked up, in no order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.ids.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_spellings_counts() {
        let texts = Blob::of(["a", "b", "a", "", "日本", "c"], 9).unwrap();
        let index = Index::new(texts, |id| id != 5);
        let all = ["a", "b", "", "日本", "c", "日"].map(|text| index.get(text));
        assert_eq!(all, [Some(0), Some(1), None, Some(4), None, None]);
        assert_eq!(index.text(4), "日本");
        assert_eq!(index.ids().count(), 3);
    }
}
