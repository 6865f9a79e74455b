//! Metadata: the typed key-value pairs of the file header, decoded on access.
//!
//! A vocabulary is hundreds of thousands of strings. Opening a file scans them once and stores a
//! four-byte offset for each; strings are borrowed from the mapped file.

use std::fmt;
use std::sync::Arc;

use super::map::Bytes;
use super::value::{Array, Value, ValueType};
use tabla_core::error::{Result, bail};

/// Location of a key's value in the file.
pub(super) struct Entry {
    pub(super) key: String,
    /// Type of the value, or of the items of an array.
    pub(super) kind: ValueType,
    /// First byte of the value, after a string's length or an array's header.
    pub(super) at: usize,
    pub(super) bytes: usize,
    /// For arrays: the number of items.
    pub(super) items: Option<usize>,
    /// For arrays of strings: see [`Array`].
    pub(super) starts: Vec<u32>,
}

/// The metadata of a file, in file order, with type-checked getters.
///
/// A getter returns `Ok(None)` for a missing key, and an error with the key, the expected type and
/// the value for a mismatch.
pub struct Metadata {
    bytes: Arc<Bytes>,
    entries: Vec<Entry>,
    /// Indices of `entries`, sorted by key.
    by_key: Vec<u32>,
}

impl Metadata {
    /// Returns empty metadata, for safetensors files.
    pub(super) fn empty() -> Self {
        Self {
            bytes: Arc::new(Bytes::memory(b"")),
            entries: Vec::new(),
            by_key: Vec::new(),
        }
    }

    pub(super) fn new(bytes: Arc<Bytes>, entries: Vec<Entry>) -> Result<Self> {
        match sorted(&entries, |e| &e.key) {
            Ok(by_key) => Ok(Self {
                bytes,
                entries,
                by_key,
            }),
            Err((_, second)) => {
                bail!(
                    Format,
                    "header byte {}: key {} occurs twice",
                    second.at,
                    second.key
                )
            }
        }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let index = find(&self.entries, &self.by_key, |e| &e.key, key)?;
        self.value(self.entries.get(index)?)
    }

    /// Returns keys and values in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.entries
            .iter()
            .filter_map(|e| Some((e.key.as_str(), self.value(e)?)))
    }

    /// Returns an integer of any type as `u32`.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "an integer from 0 to 4294967295", Value::integer)
    }

    /// Returns an integer of any type as `u64`.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.typed(
            key,
            "an integer from 0 to 18446744073709551615",
            Value::integer,
        )
    }

    /// Returns a finite `f32` or `f64` as `f32`.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a finite f32", |v| v.float().filter(|n| n.is_finite()))
    }

    /// Returns a bool.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", Value::boolean)
    }

    /// Returns a UTF-8 string.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a UTF-8 string", Value::text)
    }

    /// Returns an array of UTF-8 strings.
    pub fn strs(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.list(key, "a UTF-8 string", Value::text)
    }

    /// Returns an array of strings as bytes, for vocabularies that are not UTF-8.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&[u8]>>> {
        self.list(key, "a string", |v| {
            if let Value::String(s) = v {
                Some(s)
            } else {
                None
            }
        })
    }

    /// Returns an array of integers of any type as `u32`.
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>> {
        let words = |kind| self.get(key)?.array()?.words(kind);
        // The usual types of large arrays, such as token types, at once.
        let words = words(ValueType::U32)
            .or_else(|| words(ValueType::I32).filter(|words| words.iter().all(|w| w[3] < 128)));
        if let Some(words) = words {
            return Ok(Some(words.iter().map(|w| u32::from_le_bytes(*w)).collect()));
        }
        self.list(key, "an integer from 0 to 4294967295", Value::integer)
    }

    /// Returns an array of integers of any type as `i32`.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.list(
            key,
            "an integer from -2147483648 to 2147483647",
            Value::integer,
        )
    }

    /// Returns an array of `f32` or `f64` as `f32`; values may be infinite or NaN.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        if let Some(words) = self.get(key).and_then(|v| v.array()?.words(ValueType::F32)) {
            return Ok(Some(words.iter().map(|w| f32::from_le_bytes(*w)).collect()));
        }
        self.list(key, "an f32", Value::float)
    }

    /// Returns an array of bools.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>> {
        self.list(key, "a bool", Value::boolean)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl Fn(Value<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match read(value) {
            Some(converted) => Ok(Some(converted)),
            None => bail!(
                Format,
                "{key}: expected {expected}, got {} {value}",
                value.kind().name()
            ),
        }
    }

    fn list<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl Fn(Value<'a>) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(array) = self.typed(key, "an array", Value::array)? else {
            return Ok(None);
        };
        let mut list = Vec::with_capacity(array.len());
        for (i, item) in array.iter().enumerate() {
            let Some(converted) = read(item) else {
                let kind = item.kind().name();
                bail!(
                    Format,
                    "{key}: item {i}: expected {expected}, got {kind} {item}"
                );
            };
            list.push(converted);
        }
        Ok(Some(list))
    }

    fn value<'a>(&'a self, entry: &'a Entry) -> Option<Value<'a>> {
        let end = entry.at.checked_add(entry.bytes)?;
        let data = self.bytes.as_slice().get(entry.at..end)?;
        match entry.items {
            None => entry.kind.decode(data),
            Some(len) => Some(Value::Array(Array {
                kind: entry.kind,
                len,
                data,
                starts: &entry.starts,
            })),
        }
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Returns indices sorted by name; fails with the first pair of items with the same name.
pub(super) fn sorted<T>(items: &[T], name: impl Fn(&T) -> &str) -> Result<Vec<u32>, (&T, &T)> {
    let mut pairs: Vec<(u32, &T)> = (0..).zip(items).collect();
    pairs.sort_by_key(|(i, item)| (name(item), *i));
    for pair in pairs.windows(2) {
        if let [(_, a), (_, b)] = pair
            && name(a) == name(b)
        {
            return Err((a, b));
        }
    }
    Ok(pairs.into_iter().map(|(i, _)| i).collect())
}

/// Returns the index of the item named `key`; `order` is the result of [`sorted`].
pub(super) fn find<T>(
    items: &[T],
    order: &[u32],
    name: impl Fn(&T) -> &str,
    key: &str,
) -> Option<usize> {
    let index = |i: &u32| usize::try_from(*i).ok();
    let item = |i: &u32| index(i).and_then(|i| items.get(i));
    let position = order
        .binary_search_by(|i| item(i).map_or("", &name).cmp(key))
        .ok()?;
    order.get(position).and_then(index)
}
