//! Token texts in one allocation, token types, and limits on vocabularies.

use super::array::{Array, Section};
use tabla_core::error::{Result, bail};

/// Maximum vocabulary size. The largest in use has 262,208 entries.
pub(super) const TOKENS_MAX: usize = 1 << 21;
/// Maximum token length in bytes.
pub(super) const TOKEN_BYTES_MAX: usize = 2048;
/// Maximum length of all tokens together in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 64 << 20;

/// A table of byte strings in one allocation.
#[derive(Debug)]
pub(super) struct StringTable {
    pub(super) bytes: Array<u8>,
    /// Ascending.
    pub(super) ends: Array<u32>,
}

/// Builds a [`StringTable`].
#[derive(Debug)]
pub(super) struct StringTableBuilder {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    entry_bytes_max: usize,
}

impl StringTableBuilder {
    /// Creates an empty table with capacity for `entries` of typical length.
    pub(super) fn sized_for(entries: usize, entry_bytes_max: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(entries.saturating_mul(8).min(TEXT_BYTES_MAX)),
            ends: Vec::with_capacity(entries),
            entry_bytes_max,
        }
    }

    /// Appends an entry: the bytes that `write` appends.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let (n, bytes, max) = (
            self.ends.len(),
            self.bytes.len() - start,
            self.entry_bytes_max,
        );
        if bytes > max {
            bail!(
                TooLarge,
                "entry {n}: {bytes} bytes exceed the limit of {max}"
            );
        }
        match u32::try_from(self.bytes.len()) {
            Ok(end) if self.bytes.len() <= TEXT_BYTES_MAX => self.ends.push(end),
            _ => bail!(
                TooLarge,
                "the entries exceed the limit of {TEXT_BYTES_MAX} bytes"
            ),
        }
        Ok(())
    }

    /// Returns the table.
    pub(super) fn finish(self) -> StringTable {
        StringTable {
            bytes: self.bytes.into(),
            ends: self.ends.into(),
        }
    }
}

impl StringTable {
    /// Creates a table of `strings`.
    pub(super) fn from_strings<'a, I>(strings: I, entry_bytes_max: usize) -> Result<Self>
    where
        I: IntoIterator<Item = &'a str, IntoIter: ExactSizeIterator>,
    {
        let strings = strings.into_iter();
        let mut table = StringTableBuilder::sized_for(strings.len(), entry_bytes_max);
        for string in strings {
            table.push(|out| out.extend_from_slice(string.as_bytes()))?;
        }
        Ok(table.finish())
    }

    /// Uses the table in two sections.
    ///
    /// # Errors
    /// `Format` for invalid ends, or entries over the limits of a vocabulary.
    pub(super) fn stored(bytes: Section, ends: Section) -> Result<Self> {
        let (bytes, ends) = (Array::shared(bytes)?, Array::<u32>::shared(ends)?);
        let table = Self { bytes, ends };
        let is_complete = table.ends.last().map_or(0, |end| *end as usize) == table.bytes.len();
        if table.longest() > TOKEN_BYTES_MAX || !is_complete || table.bytes.len() > TEXT_BYTES_MAX {
            bail!(Format, "the ends of token texts are invalid");
        }
        Ok(table)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the length of the longest entry. Ends that do not ascend give a length over every limit.
    pub(super) fn longest(&self) -> usize {
        let ends = &*self.ends;
        let lengths = ends
            .array_windows()
            .map(|[start, end]| end.wrapping_sub(*start));
        lengths.fold(ends.first().copied().unwrap_or(0), u32::max) as usize
    }

    /// Returns the size of the table in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.memory_bytes() + self.ends.memory_bytes()
    }

    /// Returns entry `n`, empty if out of range.
    #[inline]
    pub(super) fn get(&self, n: usize) -> &[u8] {
        let ends = &*self.ends;
        let Some(&end) = ends.get(n) else {
            return &[];
        };
        let start = if n == 0 { 0 } else { ends[n - 1] };
        let entry = self.bytes.get(start as usize..end as usize);
        entry.unwrap_or_default()
    }

    /// All entries, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|n| self.get(n))
    }

    /// Returns entry `n` of a table of strings; empty for an entry of a file that is not UTF-8.
    pub(super) fn text(&self, n: usize) -> &str {
        str::from_utf8(self.get(n)).unwrap_or_default()
    }
}

/// Type of a token, as in `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenType {
    /// Converts a GGUF number. Unknown numbers are normal tokens, as in llama.cpp.
    pub(super) fn from_ggml(number: u32) -> Self {
        match number {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }

    /// Converts to the GGUF number.
    pub(super) fn to_ggml(self) -> u8 {
        match self {
            Self::Normal => 1,
            Self::Unknown => 2,
            Self::Control => 3,
            Self::UserDefined => 4,
            Self::Unused => 5,
            Self::Byte => 6,
        }
    }

    /// Whether merging plain text can produce this token.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Unused)
    }

    /// Whether this is a control or unknown token, which decoding omits by default.
    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabla_core::error::ErrorKind;

    #[test]
    fn returns_entries() {
        let table = StringTable::from_strings(["a", "", "日本", "z"], 6).unwrap();
        let all: Vec<_> = (0..5).map(|n| table.text(n)).collect();
        assert_eq!(all, ["a", "", "日本", "z", ""]);
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn rejects_token_over_limit() {
        assert!(StringTable::from_strings(["12345"], 5).is_ok());
        let error = StringTable::from_strings(["a", "123456"], 5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert_eq!(error.message(), "entry 1: 6 bytes exceed the limit of 5");
    }
}
