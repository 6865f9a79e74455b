//! Stored responses, in memory. The number, the bytes and the age of entries are limited, and bodies of requests that
//! need their memory get it.

use crate::http::memory::{BodyBudget, BodyMemory, JSON_BYTES_MAX, value_bytes};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum memory of all entries in bytes.
const BYTES_MAX: usize = 256 << 20;

/// Duration after which an entry that no request has used is removed.
const TIME_MAX: Duration = Duration::from_hours(24);

/// A response to store.
#[derive(Clone, Debug)]
pub(crate) struct StoredResponse {
    /// The response object.
    pub(crate) response: Value,
    /// Items of the request, without those of the previous response, and of the answer.
    pub(crate) items: Vec<Value>,
    /// Identifier of the previous response of the conversation.
    pub(crate) previous: Option<String>,
}

/// Stored responses. The least recently used entry is removed first.
#[derive(Debug)]
pub(crate) struct ResponseStore {
    entries_max: usize,
    /// Of all bodies and responses.
    budget: Arc<BodyBudget>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<String, Entry>,
    /// Identifiers of entries by the time of their last use.
    uses: BTreeMap<u64, String>,
    /// Identifier of the entry that has an item, by the identifier of the item.
    items: HashMap<String, String>,
    clock: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    response: Arc<Value>,
    items: Arc<Vec<Value>>,
    /// Memory of the response and its items.
    memory: Arc<BodyMemory>,
    /// Items of the earlier responses of the conversation, which may be removed meanwhile, and their memory.
    history: Vec<(Arc<Vec<Value>>, Arc<BodyMemory>)>,
    /// Bytes of the response, its items and its history.
    bytes: usize,
    /// Key in `State::uses`.
    used: u64,
    used_at: Instant,
}

impl ResponseStore {
    /// Creates a store of at most `entries_max` responses.
    pub(crate) fn new(entries_max: usize, budget: &Arc<BodyBudget>) -> Self {
        Self {
            entries_max,
            budget: Arc::clone(budget),
            state: Mutex::default(),
        }
    }

    /// Stores a response under its field `id`.
    pub(crate) fn insert(&self, stored: StoredResponse) {
        let Some(id) = stored.response["id"].as_str().map(str::to_string) else {
            return;
        };
        let items = stored.items.iter().map(value_bytes);
        let mut bytes = value_bytes(&stored.response) + items.sum::<usize>();
        if let Some(previous) = &stored.previous {
            self.state().touch(previous);
        }
        // Before the lock, because this may remove the oldest entries.
        let memory = self.budget.body();
        if memory.grow(bytes).is_err() {
            return;
        }
        let mut state = self.state();
        state.remove(&id);
        let mut history = Vec::new();
        if let Some(previous) = &stored.previous {
            // Without it, the conversation cannot be continued.
            let Some(previous) = state.entries.get(previous) else {
                return;
            };
            history.clone_from(&previous.history);
            history.push((Arc::clone(&previous.items), Arc::clone(&previous.memory)));
            bytes += previous.bytes;
        }
        // A request that continues the conversation could not have its messages.
        if bytes > JSON_BYTES_MAX {
            return;
        }
        for item in &stored.items {
            if let Some(item) = item["id"].as_str() {
                state.items.insert(item.to_string(), id.clone());
            }
        }
        let entry = Entry {
            response: Arc::new(stored.response),
            items: Arc::new(stored.items),
            memory,
            history,
            bytes,
            used: 0,
            used_at: Instant::now(),
        };
        state.bytes += bytes;
        state.entries.insert(id.clone(), entry);
        state.touch(&id);
        state.evict(self.entries_max);
    }

    /// Returns a response object.
    pub(crate) fn response(&self, id: &str) -> Option<Arc<Value>> {
        let mut state = self.state();
        state.evict(self.entries_max);
        state.touch(id);
        Some(Arc::clone(&state.entries.get(id)?.response))
    }

    /// Returns all items of the conversation that ends with a response, and their bytes; `None` if it is not
    /// stored.
    pub(crate) fn conversation(&self, id: &str) -> Option<(Vec<Arc<Vec<Value>>>, usize)> {
        let mut state = self.state();
        state.evict(self.entries_max);
        state.touch(id);
        let entry = state.entries.get(id)?;
        let history = entry.history.iter().map(|(items, _)| items);
        let parts = history.chain([&entry.items]).cloned();
        Some((parts.collect(), entry.bytes))
    }

    /// Returns an item of a request or an answer.
    pub(crate) fn item(&self, id: &str) -> Option<Value> {
        let mut state = self.state();
        state.evict(self.entries_max);
        let owner = state.items.get(id)?.clone();
        state.touch(&owner);
        let items = &state.entries.get(&owner)?.items;
        items.iter().find(|item| item["id"] == id).cloned()
    }

    /// Removes a response. Returns whether it was stored.
    pub(crate) fn remove(&self, id: &str) -> bool {
        self.state().remove(id)
    }

    /// Removes the least recently used response if all of them have `bytes` bytes: a body that does not fit without
    /// them removes none. Returns whether it did.
    pub(crate) fn reclaim(&self, bytes: usize) -> bool {
        self.state().bytes >= bytes && self.remove_oldest()
    }

    /// Removes the least recently used response. Returns whether there was one.
    pub(crate) fn remove_oldest(&self) -> bool {
        let mut state = self.state();
        let oldest = state.uses.first_key_value().map(|(_, id)| id.clone());
        oldest.is_some_and(|id| state.remove(&id))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Marks an entry as the most recently used one.
    fn touch(&mut self, id: &str) {
        self.clock += 1;
        let clock = self.clock;
        if let Some(entry) = self.entries.get_mut(id) {
            self.uses.remove(&entry.used);
            self.uses.insert(clock, id.to_string());
            entry.used = clock;
            entry.used_at = Instant::now();
        }
    }

    /// Removes entries until all limits hold.
    fn evict(&mut self, entries_max: usize) {
        while let Some(oldest) = self.uses.first_key_value().map(|(_, id)| id.clone()) {
            let is_old = |entry: &Entry| entry.used_at.elapsed() > TIME_MAX;
            let is_old = self.entries.get(&oldest).is_none_or(is_old);
            if self.entries.len() <= entries_max && self.bytes <= BYTES_MAX && !is_old {
                return;
            }
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, id: &str) -> bool {
        let Some(entry) = self.entries.remove(id) else {
            return false;
        };
        self.uses.remove(&entry.used);
        self.bytes -= entry.bytes;
        for item in entry.items.iter().filter_map(|item| item["id"].as_str()) {
            // A later entry may have the same item.
            if self.items.get(item).is_some_and(|owner| owner == id) {
                self.items.remove(item);
            }
        }
        true
    }
}
