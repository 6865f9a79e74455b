//! Resource limits of one rendering: memory, instructions and time.
//!
//! The engine counts instructions, but a single instruction can double a string or repeat it a
//! hundred million times. So all operations that create strings or lists are charged here, before
//! or immediately after they run.

use super::python;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tabla_core::error::{self, ErrorKind as Kind};

/// Base limit of allocated bytes, regardless of the conversation.
const BYTES_BASE: usize = 16 << 20;
/// Additional bytes for each byte of the conversation: a message passes through a dozen filters
/// and concatenations, and JSON escapes take up to six bytes per byte.
const BYTES_PER_BYTE: usize = 256;
/// Base limit of instructions, and additional ones for each value of the conversation.
const FUEL_BASE: u64 = 500_000;
const FUEL_PER_VALUE: u64 = 5_000;
/// Maximum number of lists and maps: each may contain the previous one, and recursion must not
/// overflow the stack.
const CONTAINERS_MAX: usize = 50_000;
/// Time limit. A normal template takes milliseconds.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Memory of a list item.
const ITEM_BYTES: usize = size_of::<Value>();

/// Size of a conversation; the limits grow with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConversationSize {
    pub(super) bytes: usize,
    pub(super) values: usize,
}

/// Limits and usage of a rendering.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: usize,
    used: AtomicUsize,
    containers: AtomicUsize,
    fuel: u64,
    end: Instant,
}

impl Budget {
    pub(super) fn new(size: ConversationSize) -> Self {
        let values = u64::try_from(size.values).unwrap_or(u64::MAX);
        Self {
            bytes: BYTES_BASE.saturating_add(size.bytes.saturating_mul(BYTES_PER_BYTE)),
            used: AtomicUsize::new(0),
            containers: AtomicUsize::new(0),
            fuel: FUEL_BASE.saturating_add(values.saturating_mul(FUEL_PER_VALUE)),
            end: Instant::now() + TIME_MAX,
        }
    }

    /// Maximum number of instructions.
    pub(super) fn fuel(&self) -> u64 {
        self.fuel
    }

    /// Charges `bytes` of memory.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), Error> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.bytes {
            // Keep the sum at the limit, so that it cannot wrap around.
            self.used.store(self.bytes, Ordering::Relaxed);
            return Err(self.exceeded());
        }
        self.check_time()
    }

    /// Charges the memory of a new value.
    pub(super) fn charge_value(&self, value: &Value) -> Result<(), Error> {
        if let Some(text) = value.as_str() {
            return self.charge(text.len());
        }
        if value.kind() >= ValueKind::Seq {
            let before = self.containers.fetch_add(1, Ordering::Relaxed);
            if before >= CONTAINERS_MAX {
                let message = format!("rendering creates more than {CONTAINERS_MAX} lists");
                return Err(template_error(Kind::TooLarge, &message));
            }
            self.check_reachable_size(value)?;
        }
        self.charge(value.len().unwrap_or(0).saturating_mul(ITEM_BYTES))
    }

    /// Fails if the values reachable from `value` exceed the byte limit. Lists that share their items
    /// can represent exponentially many values, and comparing or writing a list visits all of them.
    fn check_reachable_size(&self, value: &Value) -> Result<(), Error> {
        let (mut reachable, mut open) = (0usize, vec![value.clone()]);
        while let Some(value) = open.pop() {
            let items = value.len().unwrap_or(0).saturating_mul(ITEM_BYTES);
            reachable = reachable.saturating_add(value.as_str().map_or(items, str::len));
            if reachable > self.bytes {
                return Err(self.exceeded());
            }
            match value.kind() {
                ValueKind::Seq => open.extend(value.try_iter()?),
                ValueKind::Map => {
                    for key in value.try_iter()? {
                        open.push(value.get_item(&key)?);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails when the time limit is exceeded. Loops check it at their start.
    pub(super) fn check_time(&self) -> Result<(), Error> {
        if Instant::now() > self.end {
            let seconds = TIME_MAX.as_secs();
            let message = format!("rendering takes more than {seconds} s");
            return Err(template_error(Kind::TooLarge, &message));
        }
        Ok(())
    }

    fn exceeded(&self) -> Error {
        let message = format!("rendering creates more than {} bytes of text", self.bytes);
        template_error(Kind::TooLarge, &message)
    }

    /// Returns the text that `write` writes, and charges it.
    pub(super) fn text(
        &self,
        write: impl FnOnce(&mut MeteredWriter<'_, String>) -> fmt::Result,
    ) -> Result<String, Error> {
        let mut out = String::new();
        self.write_to(&mut out, write)?;
        Ok(out)
    }

    /// Writes to `out`, and charges the text.
    pub(super) fn write_to<W: fmt::Write>(
        &self,
        out: &mut W,
        write: impl FnOnce(&mut MeteredWriter<'_, W>) -> fmt::Result,
    ) -> Result<(), Error> {
        let mut writer = MeteredWriter {
            out,
            budget: self,
            error: None,
        };
        if write(&mut writer).is_err() {
            return Err(writer
                .error
                .unwrap_or_else(|| template_error(Kind::TooLarge, python::TOO_DEEP)));
        }
        Ok(())
    }
}

/// A writer that charges the text to the budget.
pub(super) struct MeteredWriter<'a, W> {
    out: &'a mut W,
    budget: &'a Budget,
    error: Option<Error>,
}

impl<W: fmt::Write> fmt::Write for MeteredWriter<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Err(error) = self.budget.charge(text.len()) {
            self.error = Some(error);
            return Err(fmt::Error);
        }
        self.out.write_str(text)
    }
}

/// Wraps an error of this crate in an error of the engine.
pub(super) fn template_error(kind: Kind, message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_string())
        .with_source(error::Error::new(kind, message))
}
