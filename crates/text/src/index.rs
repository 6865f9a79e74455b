//! Lookup from token text to id: a hash table over one string table.

use super::hash::{Entries, NumberTable, Seed, WideTable, is_same};
use super::pieces::StringTable;
use tabla_core::error::Result;

/// The token texts of a vocabulary, and a hash table of a subset of them.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) texts: StringTable,
    pub(super) ids: NumberTable,
}

impl Index {
    /// Indexes the ids that `keep` accepts. The first of duplicates wins; empty texts are skipped. Also returns a
    /// table for many lookups while the tokenizer is built.
    ///
    /// # Errors
    /// Those of [`Entries::table`].
    pub(super) fn new(texts: StringTable, keep: impl Fn(u32) -> bool) -> Result<(Self, WideTable)> {
        let text = |id: u32| texts.get(id as usize);
        let entries = Entries {
            count: texts.len(),
            numbers: || {
                let listed = (0..).zip(texts.iter());
                let listed = listed.filter(|(id, text)| !text.is_empty() && keep(*id));
                listed.map(|(id, _)| id)
            },
            hash: |seed: Seed, id| seed.hash(text(id)),
            is_same: |a, b| is_same(text(a), text(b)),
        };
        let table = entries.wide_table()?;
        let ids = table.narrow();
        Ok((Self { texts, ids }, table))
    }

    /// Returns the id of a token text.
    #[inline]
    pub(super) fn get(&self, text: &str) -> Option<u32> {
        let text = text.as_bytes();
        self.ids.find(self.ids.seed.hash(text), |id| {
            is_same(self.texts.get(id as usize), text)
        })
    }

    /// Returns the text of an id.
    pub(super) fn text(&self, id: u32) -> &str {
        self.texts.text(id as usize)
    }

    /// Returns the text of an id as bytes.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize)
    }

    /// Returns the number of ids, with those that are not indexed.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns the size of both tables in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.texts.memory_bytes() + self.ids.slots.memory_bytes()
    }

    /// The indexed ids, in arbitrary order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.ids.numbers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_of_duplicate_texts_wins() {
        let texts = StringTable::from_strings(["a", "b", "a", "", "日本", "c"], 9).unwrap();
        let index = Index::new(texts, |id| id != 5).unwrap().0;
        let all = ["a", "b", "", "日本", "c", "日"].map(|text| index.get(text));
        assert_eq!(all, [Some(0), Some(1), None, Some(4), None, None]);
        assert_eq!(index.text(4), "日本");
        assert_eq!(index.ids().count(), 3);
    }
}
