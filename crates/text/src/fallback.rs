//! Encoding of text without a token: byte tokens or the unknown token.

use super::index::Index;
use super::pieces::TokenType;
use super::spm;
use serde::{Deserialize, Serialize};
use tabla_core::error::{Result, bail};

/// How characters without a token are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unknown {
    /// As byte tokens; without them, as one unknown token for consecutive characters.
    Bytes,
    /// As one unknown token for consecutive characters.
    Fused,
    /// As one unknown token per character.
    Single,
}

/// Tokens for text that is not in the vocabulary.
#[derive(Debug, Default)]
pub(super) struct Fallback {
    /// Token of each byte, with byte fallback.
    pub(super) bytes: Option<Box<[Option<u32>; 256]>>,
    /// The unknown token.
    pub(super) unk: Option<u32>,
    /// Whether consecutive unknown parts become one unknown token.
    pub(super) fuse: bool,
}

impl Fallback {
    /// Creates the fallback of a vocabulary with the unknown token `unk`.
    pub(super) fn new(
        unknown: Unknown,
        unk: Option<u32>,
        index: &Index,
        token_types: impl Iterator<Item = TokenType>,
    ) -> Self {
        let bytes = (unknown == Unknown::Bytes).then(|| Self::byte_tokens(index, token_types));
        let fuse = unknown != Unknown::Single;
        Self { bytes, unk, fuse }
    }

    /// Returns the byte tokens, such as `<0x0A>`.
    fn byte_tokens(
        index: &Index,
        token_types: impl Iterator<Item = TokenType>,
    ) -> Box<[Option<u32>; 256]> {
        let mut bytes = Box::new([None; 256]);
        for (id, _) in (0..)
            .zip(token_types)
            .filter(|(_, token_type)| *token_type == TokenType::Byte)
        {
            if let Some(byte) = spm::byte_of(index.text(id)) {
                bytes[usize::from(byte)].get_or_insert(id);
            }
        }
        bytes
    }

    /// Appends the ids of the parts of a text. Each part has its id or `None`.
    ///
    /// # Errors
    /// `Tokenizer` if a part has neither byte tokens nor an unknown token.
    pub(super) fn write<'t>(
        &self,
        parts: impl Iterator<Item = (Option<u32>, &'t str)>,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let mut after_unk = false;
        for (id, text) in parts {
            let unk = id.is_none() && !self.write_bytes(text, out);
            if let Some(id) = id {
                out.push(id);
            } else if unk && !(after_unk && self.fuse) {
                let Some(unk) = self.unk else {
                    bail!(Tokenizer, "the vocabulary has no token for {text:?}");
                };
                out.push(unk);
            }
            after_unk = unk;
        }
        Ok(())
    }

    /// Appends the tokens of all bytes, or nothing if a byte has no token. Returns whether it did.
    fn write_bytes(&self, text: &str, out: &mut Vec<u32>) -> bool {
        let Some(ids) = &self.bytes else {
            return false;
        };
        let length = out.len();
        out.extend(text.bytes().map_while(|byte| ids[usize::from(byte)]));
        let is_complete = out.len() - length == text.len();
        if !is_complete {
            out.truncate(length);
        }
        is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabla_core::error::ErrorKind;

    fn write(fallback: &Fallback, parts: &[(Option<u32>, &str)]) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        fallback.write(parts.iter().copied(), &mut ids)?;
        Ok(ids)
    }

    #[test]
    fn falls_back_to_bytes_then_unknown_token_then_error() {
        let parts = [(Some(7), "x"), (None, "a"), (None, "é"), (None, "b")];
        let mut bytes = Box::new([None; 256]);
        bytes[usize::from(b'a')] = Some(1);
        bytes[0xc3] = Some(2);
        let mut fallback = Fallback {
            bytes: Some(bytes),
            unk: Some(0),
            fuse: true,
        };
        assert_eq!(write(&fallback, &parts).unwrap(), [7, 1, 0]);
        fallback.fuse = false;
        assert_eq!(write(&fallback, &parts).unwrap(), [7, 1, 0, 0]);
        fallback.unk = None;
        let error = write(&fallback, &parts).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tokenizer);
        assert_eq!(error.message(), "the vocabulary has no token for \"é\"");
    }
}
