//! Memory of the bodies of all requests in flight, of the JSON values in them, and of stored responses.

use super::error::{ApiError, ApiResult};
use axum::http::StatusCode;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Maximum number of bytes of the JSON values of one body.
pub(crate) const JSON_BYTES_MAX: usize = 40 << 20;

/// Number of bytes up to which a body may use the reserve, so that large bodies do not keep out small ones.
const SMALL_BYTES: usize = 1 << 20;

/// Bytes of an element of a list.
const ELEMENT_BYTES: usize = size_of::<Value>();
/// Bytes of an entry of an object: hash, key, value, and its place in the index.
const ENTRY_BYTES: usize = size_of::<u64>() + size_of::<String>() + size_of::<Value>() + 16;
/// Bytes of the allocation of a string, in addition to its text.
const STRING_BYTES: usize = 32;
/// Minimum capacity of a list and of an object.
const CAPACITY_MIN: usize = 4;
/// Unused capacity beyond this number of bytes is not backed by memory.
const RESIDENT_BYTES: usize = 128 << 10;
/// Maximum depth of nested lists and objects, that of the parser.
const DEPTH_MAX: usize = 127;

/// Limit of the memory of all bodies in flight and of stored responses together.
pub(crate) struct BodyBudget {
    used: AtomicUsize,
    bytes: usize,
    /// Whether a large body was freed.
    has_freed: AtomicBool,
    /// Frees some of the memory that no request needs, if that number of bytes of it exists. Returns whether it did.
    reclaim: OnceLock<Reclaim>,
}

type Reclaim = Box<dyn Fn(usize) -> bool + Send + Sync>;

impl std::fmt::Debug for BodyBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyBudget")
            .field("used", &self.used)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Memory of one body. Dropping it returns it to the budget.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    budget: Arc<BodyBudget>,
    bytes: AtomicUsize,
}

impl BodyBudget {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            bytes,
            has_freed: AtomicBool::new(false),
            reclaim: OnceLock::new(),
        })
    }

    /// Sets the function that frees memory when a body lacks a number of bytes: it returns whether it freed any. Only the
    /// first call has an effect.
    pub(crate) fn set_reclaim(&self, reclaim: impl Fn(usize) -> bool + Send + Sync + 'static) {
        let _ = self.reclaim.set(Box::new(reclaim));
    }

    /// Frees memory, if `bytes` bytes of it can be freed in total.
    fn reclaim(&self, bytes: usize) -> bool {
        self.reclaim.get().is_some_and(|reclaim| reclaim(bytes))
    }

    /// Returns whether a large body was freed since the last call.
    pub(crate) fn take_freed(&self) -> bool {
        self.has_freed.swap(false, Ordering::Relaxed)
    }

    /// Returns the memory of a body without bytes.
    pub(crate) fn body(self: &Arc<Self>) -> Arc<BodyMemory> {
        Arc::new(BodyMemory {
            budget: Arc::clone(self),
            bytes: AtomicUsize::new(0),
        })
    }
}

impl BodyMemory {
    /// Takes further bytes of the budget.
    ///
    /// # Errors
    ///
    /// Status 503 if the bodies of other requests use them.
    pub(crate) fn grow(&self, bytes: usize) -> ApiResult<()> {
        let own = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        let limit = match own <= SMALL_BYTES {
            true => self.budget.bytes,
            false => self.budget.bytes / 4 * 3,
        };
        let grown = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        let used = &self.budget.used;
        let take = || used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
        while take().is_err() {
            let missing =
                (used.load(Ordering::Relaxed).saturating_add(bytes)).saturating_sub(limit);
            if self.budget.reclaim(missing) {
                continue;
            }
            let message = "the bodies of other requests use the memory for bodies, try again later";
            let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message);
            return Err(error.retry_after(1));
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Returns all bytes to the budget: the body has become a prompt.
    pub(crate) fn release(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
        if bytes > SMALL_BYTES {
            self.budget.has_freed.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for BodyMemory {
    fn drop(&mut self) {
        self.release();
    }
}

/// Returns an upper bound of the memory of a value.
pub(crate) fn value_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => STRING_BYTES + text.len(),
        Value::Array(items) => {
            let inner: usize = items.iter().map(value_bytes).sum();
            inner + capacity_bytes(ELEMENT_BYTES, items.len())
        }
        Value::Object(fields) => {
            let entry =
                |(key, value): (&String, &Value)| STRING_BYTES + key.len() + value_bytes(value);
            let inner: usize = fields.iter().map(entry).sum();
            inner + capacity_bytes(ENTRY_BYTES, fields.len())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Returns the resident bytes of a list or an object that has grown to `len` items.
fn capacity_bytes(item: usize, len: usize) -> usize {
    let capacity = match len {
        0 => 0,
        len => len.next_power_of_two().max(CAPACITY_MIN) * item,
    };
    capacity.min(RESIDENT_BYTES).max(len * item)
}

/// Estimates the memory of the values of a JSON text, before it is parsed and while it arrives.
#[derive(Debug, Default)]
pub(crate) struct JsonScan {
    /// Upper bound of the memory of the values so far.
    bytes: usize,
    /// The lists and objects around the next byte.
    open: Vec<Open>,
    text: Text,
}

/// Whether the next byte is in a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Text {
    #[default]
    Outside,
    Inside,
    /// After a backslash.
    Escaped,
}

#[derive(Debug)]
struct Open {
    /// Bytes of an item.
    item: usize,
    len: usize,
}

impl JsonScan {
    /// Scans the next bytes. Returns the bytes of memory that their values need.
    ///
    /// # Errors
    ///
    /// Status 400 beyond the maximum depth, 413 beyond the maximum memory.
    pub(crate) fn push(&mut self, text: &[u8]) -> ApiResult<usize> {
        let before = self.bytes;
        for byte in text {
            if self.text != Text::Outside {
                self.text = match (self.text, byte) {
                    (Text::Inside, b'"') => Text::Outside,
                    (Text::Inside, b'\\') => Text::Escaped,
                    _ => Text::Inside,
                };
                continue;
            }
            match byte {
                b'[' => self.open(ELEMENT_BYTES)?,
                b'{' => self.open(ENTRY_BYTES)?,
                b']' | b'}' => self.close(),
                b',' => self.item(),
                b'"' => {
                    self.first_item();
                    self.bytes += STRING_BYTES;
                    self.text = Text::Inside;
                }
                b' ' | b'\n' | b'\r' | b'\t' => {}
                _ => self.first_item(),
            }
            if self.bytes > JSON_BYTES_MAX {
                let message = format!(
                    "the body has too many values: they exceed {} MiB of memory, send several requests",
                    JSON_BYTES_MAX >> 20
                );
                return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
        }
        Ok(self.bytes - before)
    }

    fn open(&mut self, item: usize) -> ApiResult<()> {
        self.first_item();
        if self.open.len() == DEPTH_MAX {
            let message = format!("invalid JSON: more than {DEPTH_MAX} nested lists and objects");
            return Err(ApiError::invalid(message));
        }
        self.open.push(Open { item, len: 0 });
        Ok(())
    }

    fn close(&mut self) {
        if let Some(Open { item, len }) = self.open.pop() {
            self.bytes += capacity_bytes(item, len) - len * item;
        }
    }

    /// Counts the first item of a list or an object, which follows no comma.
    fn first_item(&mut self) {
        if self.open.last().is_some_and(|open| open.len == 0) {
            self.item();
        }
    }

    fn item(&mut self) {
        if let Some(open) = self.open.last_mut() {
            open.len += 1;
            self.bytes += open.item;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str) -> usize {
        let mut scan = JsonScan::default();
        // In pieces, as it arrives.
        let pieces = text.as_bytes().chunks(3);
        let bytes = pieces.map(|piece| scan.push(piece).expect("within the limits"));
        bytes.sum()
    }

    #[test]
    fn a_scan_finds_the_values_of_the_parser() {
        for text in [
            "{}",
            "null",
            r#"{"a":1}"#,
            r#" { "a" : [ 1 , 2.5e3, "x" ], "b": {"c": null} } "#,
            r#"[[],[[]],{},{"":0},[1,2,3,4,5]]"#,
            r#"["{[,", "\"", "\\", "\\\"],["]"#,
        ] {
            let value: Value = serde_json::from_str(text).expect("valid JSON");
            let texts = value_bytes(&value);
            // Texts are counted as bytes of the body.
            let scanned = scanned(text);
            assert!(scanned <= texts && texts <= scanned + text.len(), "{text}");
        }
    }

    #[test]
    fn many_values_and_deep_ones_are_refused() {
        let many = format!("[{}0]", "{\"\":0},".repeat(100_000));
        let error = JsonScan::default().push(many.as_bytes());
        assert_eq!(error.expect_err("too many").status, 413);
        let numbers = format!("[{}0]", "1,".repeat(500_000));
        assert!(JsonScan::default().push(numbers.as_bytes()).is_ok());
        let error = JsonScan::default().push("[".repeat(128).as_bytes());
        assert_eq!(error.expect_err("too deep").status, 400);
    }

    #[test]
    fn large_bodies_do_not_keep_out_small_ones() {
        let budget = BodyBudget::new(8 << 20);
        let large = budget.body();
        large.grow(6 << 20).expect("free");
        assert_eq!(large.grow(1).expect_err("used").status, 503);
        let small = budget.body();
        small.grow(SMALL_BYTES).expect("free");
        assert!(small.grow(1).is_err());
        drop(large);
        small.grow(4 << 20).expect("free again");
        small.release();
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
