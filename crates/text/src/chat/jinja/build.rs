//! Builders of lists and dicts, which charge each item.

use super::budget::Budget;
use super::failure::{Outcome, too_large};
use super::value::{
    Dict, INDEXED_LENGTH, ITEM_BYTES, List, ListKind, Nesting, OBJECT_BYTES, Value, hash, nesting,
};
use hashbrown::HashTable;
use std::rc::Rc;

/// Builder of a list, which charges each item.
pub(super) struct Items<'b> {
    budget: &'b Budget,
    items: Vec<Value>,
}

impl<'b> Items<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        Self {
            budget,
            items: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, item: Value) -> Outcome<()> {
        self.budget.charge(ITEM_BYTES)?;
        self.items.push(item);
        Ok(())
    }

    pub(super) fn push_text(&mut self, text: &str) -> Outcome<()> {
        self.push(Value::text(text, self.budget)?)
    }

    pub(super) fn extend(&mut self, items: &[Value]) -> Outcome<()> {
        self.budget.charge(ITEM_BYTES.saturating_mul(items.len()))?;
        self.items.extend_from_slice(items);
        Ok(())
    }

    pub(super) fn reverse(&mut self) {
        self.items.reverse();
    }

    /// The items.
    pub(super) fn into_vec(self) -> Vec<Value> {
        self.items
    }

    pub(super) fn finish(self, kind: ListKind) -> Outcome<Value> {
        self.budget.charge(OBJECT_BYTES)?;
        Ok(Value::List(Rc::new(List {
            kind,
            nesting: nesting(self.items.iter())?,
            items: self.items,
        })))
    }

    pub(super) fn list(self) -> Outcome<Value> {
        self.finish(ListKind::List)
    }
}

/// Creates a tuple.
pub(super) fn tuple(budget: &Budget, items: impl IntoIterator<Item = Value>) -> Outcome<Value> {
    let mut tuple = Items::new(budget);
    for item in items {
        tuple.push(item)?;
    }
    tuple.finish(ListKind::Tuple)
}

/// Builder of a dict, which charges each entry.
pub(super) struct Entries<'b> {
    budget: &'b Budget,
    dict: Dict,
}

impl<'b> Entries<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        Self {
            budget,
            dict: Dict {
                entries: Vec::new(),
                index: HashTable::new(),
                nesting: Nesting::default(),
            },
        }
    }

    pub(super) fn len(&self) -> usize {
        self.dict.entries.len()
    }

    /// Adds an entry, or replaces the value of an existing one.
    pub(super) fn insert(&mut self, key: Value, value: Value) -> Outcome<()> {
        let hash = hash(&key, self.budget)?;
        if let Some(at) = self.dict.find(&key, hash, self.budget)? {
            self.dict.entries[at].1 = value;
            return Ok(());
        }
        self.budget.charge(2 * ITEM_BYTES + size_of::<u64>())?;
        self.dict.entries.push((key, value));
        let length = self.dict.entries.len();
        let first = match length {
            INDEXED_LENGTH => 0,
            _ => length - 1,
        };
        if length >= INDEXED_LENGTH {
            for at in first..length {
                self.add_to_index(at)?;
            }
        }
        Ok(())
    }

    fn add_to_index(&mut self, at: usize) -> Outcome<()> {
        let (budget, dict) = (self.budget, &mut self.dict);
        let hash_of = hash(&dict.entries[at].0, budget)?;
        let entries = &dict.entries;
        // Hashes were computed before, within the budget.
        let rehash = |at: &u32| hash(&entries[*at as usize].0, budget).unwrap_or(0);
        let Ok(number) = u32::try_from(at) else {
            return too_large("a dict has too many entries");
        };
        dict.index.insert_unique(hash_of, number, rehash);
        Ok(())
    }

    pub(super) fn dict(mut self) -> Outcome<Value> {
        self.budget.charge(OBJECT_BYTES)?;
        let values = self
            .dict
            .entries
            .iter()
            .flat_map(|(key, value)| [key, value]);
        self.dict.nesting = nesting(values)?;
        Ok(Value::Dict(Rc::new(self.dict)))
    }
}
