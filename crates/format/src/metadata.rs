//! Metadata: the typed key-value pairs at the head of a file, decoded when they are asked for.
//!
//! A vocabulary is hundreds of thousands of strings. Opening a file walks over them once and keeps
//! four bytes for each; text is handed out from the mapped file.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::map::Bytes;
use super::value::{Array, Value, ValueType};
use tabla_core::error::{Result, bail};

/// Where a key's value lies in the file.
pub(super) struct Entry {
    pub(super) key: String,
    /// The type, for arrays that of the items.
    pub(super) kind: ValueType,
    /// First byte of the value, after the length of a string or the head of an array.
    pub(super) at: usize,
    pub(super) bytes: usize,
    /// For arrays: how many items.
    pub(super) items: Option<usize>,
    /// For arrays of strings: see [`Array`].
    pub(super) starts: Vec<u32>,
}

/// The metadata of a file, in the file's order, with getters that check types.
///
/// A getter answers `Ok(None)` for a missing key, and an error that names key, wanted and found
/// for a value that does not fit.
pub struct Metadata {
    bytes: Arc<Bytes>,
    entries: Vec<Entry>,
    /// Indices of `entries`, sorted by key.
    by_key: Vec<u32>,
}

impl Metadata {
    /// No keys at all: files of other formats have their metadata elsewhere.
    pub(super) fn empty() -> Self {
        Self {
            bytes: Arc::new(Bytes::Held(Cow::Borrowed(&[]))),
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

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let index = find(&self.entries, &self.by_key, |e| &e.key, key)?;
        self.value(self.entries.get(index)?)
    }

    /// Keys and values in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.entries
            .iter()
            .filter_map(|e| Some((e.key.as_str(), self.value(e)?)))
    }

    /// An integer of any type that fits 32 bits without sign.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "an integer from 0 to 4294967295", Value::integer)
    }

    /// An integer of any type that fits 64 bits without sign.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.typed(
            key,
            "an integer from 0 to 18446744073709551615",
            Value::integer,
        )
    }

    /// A finite number of single or double precision.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a finite f32", |v| v.float().filter(|n| n.is_finite()))
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", Value::boolean)
    }

    /// A string, which must be UTF-8.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string of UTF-8", Value::text)
    }

    /// An array of strings, which must be UTF-8.
    pub fn strs(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.list(key, "a string of UTF-8", Value::text)
    }

    /// An array of strings as bytes, for vocabularies that are not UTF-8.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&[u8]>>> {
        self.list(key, "a string", |v| {
            if let Value::String(s) = v {
                Some(s)
            } else {
                None
            }
        })
    }

    /// An array of integers of any type that fit 32 bits without sign.
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>> {
        self.list(key, "an integer from 0 to 4294967295", Value::integer)
    }

    /// An array of integers of any type that fit 32 bits with sign.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.list(
            key,
            "an integer from -2147483648 to 2147483647",
            Value::integer,
        )
    }

    /// An array of numbers of single or double precision; they may be infinite.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.list(key, "an f32", Value::float)
    }

    /// An array of truth values.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>> {
        self.list(key, "a bool", Value::boolean)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &str,
        read: impl Fn(Value<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match read(value) {
            Some(found) => Ok(Some(found)),
            None => bail!(
                Format,
                "{key}: wanted {wanted}, found {} {value}",
                value.kind().name()
            ),
        }
    }

    fn list<'a, T>(
        &'a self,
        key: &str,
        wanted: &str,
        read: impl Fn(Value<'a>) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(array) = self.typed(key, "an array", Value::array)? else {
            return Ok(None);
        };
        let mut list = Vec::with_capacity(array.len());
        for (i, item) in array.iter().enumerate() {
            let Some(found) = read(item) else {
                let kind = item.kind().name();
                bail!(
                    Format,
                    "{key}: item {i}: wanted {wanted}, found {kind} {item}"
                );
            };
            list.push(found);
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

/// Indices sorted by name; two items of the same name are the error.
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

/// The index of the item of this name, by an order that [`sorted`] made.
pub(super) fn find<T>(
    items: &[T],
    order: &[u32],
    name: impl Fn(&T) -> &str,
    wanted: &str,
) -> Option<usize> {
    let index = |i: &u32| usize::try_from(*i).ok();
    let item = |i: &u32| index(i).and_then(|i| items.get(i));
    let place = order
        .binary_search_by(|i| item(i).map_or("", &name).cmp(wanted))
        .ok()?;
    order.get(place).and_then(index)
}
