//! A bounds-checked cursor over untrusted bytes.

use std::fmt;

use tabla_core::error::{Error, ErrorKind, Result, bail};

/// A cursor over the header.
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    /// Never past the end of `bytes`.
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    /// Returns a cursor at the first byte.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns the next `len` bytes and advances.
    pub(super) fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8]> {
        self.take_u64(to_u64(len), what)
    }

    /// Same as [`Self::take`], for lengths that exceed the address space of targets of 32 bits.
    pub(super) fn take_u64(&mut self, len: u64, what: &str) -> Result<&'a [u8]> {
        let in_memory = usize::try_from(len).ok();
        let Some((taken, _)) = in_memory.and_then(|len| self.rest().split_at_checked(len)) else {
            bail!(
                Format,
                "truncated: header byte {}: {what} needs {len} bytes, the file has {} left; \
                 the file is corrupt or the download was interrupted",
                self.at,
                self.rest().len()
            );
        };
        // Cannot overflow: `len` bytes are left.
        self.at = self.at.saturating_add(taken.len());
        Ok(taken)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32> {
        let bytes = self.take(4, what)?;
        Ok(bytes.first_chunk().map_or(0, |b| u32::from_le_bytes(*b)))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64> {
        let bytes = self.take(8, what)?;
        Ok(bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)))
    }

    /// Reads a count of items; checks it against `max` and against the bytes left, where an item
    /// has at least `item_bytes` bytes.
    pub(super) fn count(
        &mut self,
        what: impl fmt::Display,
        max: u64,
        item_bytes: u64,
    ) -> Result<usize> {
        let at = self.at;
        let count = self.u64("a count")?;
        if count > max {
            bail!(
                Format,
                "header byte {at}: {count} {what} are over the limit of {max}"
            );
        }
        let left = self.rest().len();
        match (
            count.checked_mul(item_bytes).map(usize::try_from),
            usize::try_from(count),
        ) {
            (Some(Ok(need)), Ok(count)) if need <= left => Ok(count),
            _ => bail!(
                Format,
                "truncated: header byte {at}: {count} {what} need more than the {left} bytes left"
            ),
        }
    }

    /// Reads a string of at most `max` bytes.
    pub(super) fn string(&mut self, what: &str, max: u64) -> Result<&'a [u8]> {
        let len = self.count(format_args!("bytes of {what}"), max, 1)?;
        self.take(len, what)
    }

    /// Reads a name: UTF-8, not empty, without control characters.
    pub(super) fn name(&mut self, what: &str, max: u64) -> Result<String> {
        let at = self.at;
        name_of(self.string(what, max)?, at, what)
    }
}

/// Returns the bytes of a name at byte `at` as text: UTF-8, not empty, without control characters.
pub(super) fn name_of(bytes: &[u8], at: usize, what: &str) -> Result<String> {
    let Ok(name) = str::from_utf8(bytes) else {
        let shown = String::from_utf8_lossy(bytes);
        bail!(Format, "header byte {at}: {what} {shown:?} is not UTF-8");
    };
    if name.is_empty() {
        bail!(Format, "header byte {at}: {what} is empty");
    }
    if name.chars().any(char::is_control) {
        bail!(
            Format,
            "header byte {at}: {what} {name:?} contains a control character"
        );
    }
    Ok(name.to_owned())
}

/// Allocates a list for `count` items; `count` must already be checked against the file size.
pub(super) fn reserve<T>(count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).map_err(|e| {
        Error::new(
            ErrorKind::Memory,
            format_args!("out of memory allocating {count} entries"),
        )
        .caused_by(e)
    })?;
    Ok(list)
}

/// Converts a length to `u64`.
pub(super) fn to_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
