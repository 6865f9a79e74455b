//! What one rendering may use: bytes of text and items, instructions, time.
//!
//! The engine counts instructions, but one instruction can double a string or repeat it a hundred
//! million times. So everything that makes text or lists reports here before or right behind it.

use super::python;
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tabla_core::error::{self, ErrorKind as Kind};

/// Bytes that a rendering may make whatever the conversation is.
const BYTES_FREE: usize = 16 << 20;
/// Bytes that it may make for each byte of the conversation: a content passes through a dozen
/// filters and concatenations, JSON writes up to six bytes for one.
const BYTES_PER_BYTE: usize = 256;
/// Instructions whatever the conversation is, and more for each of its values.
const FUEL_FREE: u64 = 500_000;
const FUEL_PER_VALUE: u64 = 5_000;
/// Lists, maps and the like that a rendering may make: each may hold the one before, and a stack
/// must reach through all of them.
const CONTAINERS_MAX: usize = 50_000;
/// A sound template takes milliseconds.
const TIME_MAX: Duration = Duration::from_secs(5);
/// What a list keeps for an item.
const ITEM_BYTES: usize = size_of::<Value>();

/// The size of a conversation, which is what its rendering may grow with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    pub(super) bytes: usize,
    pub(super) values: usize,
}

/// What is left for a rendering.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: usize,
    used: AtomicUsize,
    containers: AtomicUsize,
    fuel: u64,
    end: Instant,
}

impl Budget {
    pub(super) fn new(size: Size) -> Self {
        let values = u64::try_from(size.values).unwrap_or(u64::MAX);
        Self {
            bytes: BYTES_FREE.saturating_add(size.bytes.saturating_mul(BYTES_PER_BYTE)),
            used: AtomicUsize::new(0),
            containers: AtomicUsize::new(0),
            fuel: FUEL_FREE.saturating_add(values.saturating_mul(FUEL_PER_VALUE)),
            end: Instant::now() + TIME_MAX,
        }
    }

    /// Instructions.
    pub(super) fn fuel(&self) -> u64 {
        self.fuel
    }

    /// Takes bytes.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), Error> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.bytes {
            // What is over stays over: the sum must not wrap around.
            self.used.store(self.bytes, Ordering::Relaxed);
            return Err(self.exceeded());
        }
        self.check_time()
    }

    /// Takes what a fresh value keeps.
    pub(super) fn charge_value(&self, value: &Value) -> Result<(), Error> {
        if let Some(text) = value.as_str() {
            return self.charge(text.len());
        }
        if value.kind() >= ValueKind::Seq {
            let before = self.containers.fetch_add(1, Ordering::Relaxed);
            if before >= CONTAINERS_MAX {
                let message = format!("rendering makes more than {CONTAINERS_MAX} lists");
                return Err(refuse(Kind::TooLarge, &message));
            }
            self.check_reach(value)?;
        }
        self.charge(value.len().unwrap_or(0).saturating_mul(ITEM_BYTES))
    }

    /// Fails where more can be reached from a value than may be made at all: lists that share
    /// their items double with each step, and whoever compares or writes one walks all of it.
    fn check_reach(&self, value: &Value) -> Result<(), Error> {
        let (mut reached, mut open) = (0usize, vec![value.clone()]);
        while let Some(value) = open.pop() {
            let items = value.len().unwrap_or(0).saturating_mul(ITEM_BYTES);
            reached = reached.saturating_add(value.as_str().map_or(items, str::len));
            if reached > self.bytes {
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

    /// Fails when the time is over: loops ask once a turn.
    pub(super) fn check_time(&self) -> Result<(), Error> {
        if Instant::now() > self.end {
            let seconds = TIME_MAX.as_secs();
            let message = format!("rendering takes more than {seconds} s");
            return Err(refuse(Kind::TooLarge, &message));
        }
        Ok(())
    }

    fn exceeded(&self) -> Error {
        let message = format!("rendering makes more than {} bytes of text", self.bytes);
        refuse(Kind::TooLarge, &message)
    }

    /// The text that `write` makes, charged while it grows.
    pub(super) fn text(
        &self,
        write: impl FnOnce(&mut Charged<'_, String>) -> fmt::Result,
    ) -> Result<String, Error> {
        let mut out = String::new();
        self.through(&mut out, write)?;
        Ok(out)
    }

    /// Writes into `out`, charged.
    pub(super) fn through<W: fmt::Write>(
        &self,
        out: &mut W,
        write: impl FnOnce(&mut Charged<'_, W>) -> fmt::Result,
    ) -> Result<(), Error> {
        let mut charged = Charged {
            out,
            budget: self,
            error: None,
        };
        if write(&mut charged).is_err() {
            return Err(charged
                .error
                .unwrap_or_else(|| refuse(Kind::TooLarge, python::TOO_DEEP)));
        }
        Ok(())
    }
}

/// A writer that charges what passes.
pub(super) struct Charged<'a, W> {
    out: &'a mut W,
    budget: &'a Budget,
    error: Option<Error>,
}

impl<W: fmt::Write> fmt::Write for Charged<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Err(error) = self.budget.charge(text.len()) {
            self.error = Some(error);
            return Err(fmt::Error);
        }
        self.out.write_str(text)
    }
}

/// An error of the engine that carries one of ours.
pub(super) fn refuse(kind: Kind, message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_string())
        .with_source(error::Error::new(kind, message))
}
