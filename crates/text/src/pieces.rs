//! What each token stands for: one block of bytes and its offsets, for 256k entries without 256k allocations.

use tabla_core::error::{Result, bail};

/// The largest vocabulary that is read; the largest in use has 262,208 entries.
pub(super) const TOKENS_MAX: usize = 1 << 21;
/// The longest single token that is read: bounds the work of taking tokens apart.
pub(super) const TOKEN_BYTES_MAX: usize = 2048;
/// All tokens together.
pub(super) const TEXT_BYTES_MAX: usize = 64 << 20;

/// Strings, one behind the other in one block.
#[derive(Debug)]
pub(super) struct Blob {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    entry_bytes_max: usize,
}

impl Blob {
    /// An empty block with room for some entries of a usual length.
    pub(super) fn sized_for(entries: usize, entry_bytes_max: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(entries.saturating_mul(8).min(TEXT_BYTES_MAX)),
            ends: Vec::with_capacity(entries),
            entry_bytes_max,
        }
    }

    /// Appends an entry that `write` writes at the end of the block.
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
                "entry {n}: {bytes} bytes are over the limit of {max}"
            );
        }
        match u32::try_from(self.bytes.len()) {
            Ok(end) if self.bytes.len() <= TEXT_BYTES_MAX => self.ends.push(end),
            _ => bail!(
                TooLarge,
                "the entries are over the limit of {TEXT_BYTES_MAX} bytes"
            ),
        }
        Ok(())
    }

    /// All strings, copied.
    pub(super) fn of<'a, I>(strings: I, entry_bytes_max: usize) -> Result<Self>
    where
        I: IntoIterator<Item = &'a str, IntoIter: ExactSizeIterator>,
    {
        let strings = strings.into_iter();
        let mut blob = Self::sized_for(strings.len(), entry_bytes_max);
        for string in strings {
            blob.push(|out| out.extend_from_slice(string.as_bytes()))?;
        }
        Ok(blob)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Entry `n`, or nothing past the end.
    pub(super) fn get(&self, n: usize) -> &[u8] {
        let Some(&end) = self.ends.get(n) else {
            return &[];
        };
        let start = if n == 0 { 0 } else { self.ends[n - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// All entries, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|n| self.get(n))
    }

    /// Entry `n` of a block made of strings.
    pub(super) fn text(&self, n: usize) -> &str {
        str::from_utf8(self.get(n)).expect("made of whole strings")
    }
}

/// What a token is for, as `tokenizer.ggml.token_type` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Role {
    /// A number that is not known counts as normal, as it does in llama.cpp.
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

    /// The number of this role.
    pub(super) fn to_ggml(self) -> u32 {
        match self {
            Self::Normal => 1,
            Self::Unknown => 2,
            Self::Control => 3,
            Self::UserDefined => 4,
            Self::Unused => 5,
            Self::Byte => 6,
        }
    }

    /// Whether plain text may become this token through merges.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Unused)
    }

    /// Whether the token is markup, shown only when asked for.
    pub(super) fn is_markup(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabla_core::error::ErrorKind;

    #[test]
    fn entries_come_back() {
        let blob = Blob::of(["a", "", "日本", "z"], 6).unwrap();
        let all: Vec<_> = (0..5).map(|n| blob.text(n)).collect();
        assert_eq!(all, ["a", "", "日本", "z", ""]);
        assert_eq!(blob.len(), 4);
    }

    #[test]
    fn a_token_over_the_limit_is_refused() {
        assert!(Blob::of(["12345"], 5).is_ok());
        let error = Blob::of(["a", "123456"], 5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert_eq!(error.message(), "entry 1: 6 bytes are over the limit of 5");
    }
}
