//! What becomes of text that is in no token: the tokens of its bytes, or the unknown token.

use super::index::Index;
use super::pieces::Role;
use super::spm;
use tabla_core::error::{Result, bail};

/// What stands for text that the vocabulary cannot write.
#[derive(Debug, Default)]
pub(super) struct Fallback {
    /// The token of each byte, where the vocabulary has them.
    pub(super) bytes: Option<Box<[Option<u32>; 256]>>,
    /// The unknown token.
    pub(super) unk: Option<u32>,
    /// Whether neighbours that are unknown become one token.
    pub(super) fuse: bool,
}

impl Fallback {
    /// The tokens like `<0x0A>` that stand for bytes.
    pub(super) fn byte_tokens(index: &Index, roles: &[Role]) -> Box<[Option<u32>; 256]> {
        let mut bytes = Box::new([None; 256]);
        for (id, _) in (0..).zip(roles).filter(|(_, role)| **role == Role::Byte) {
            if let Some(byte) = spm::byte_of(index.text(id)) {
                bytes[usize::from(byte)].get_or_insert(id);
            }
        }
        bytes
    }

    /// Appends the ids of parts of a text, each with its id if it has one.
    ///
    /// # Errors
    /// `Tokenizer` where nothing stands for a part: text is never left out.
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

    /// Appends the tokens of all bytes, or nothing if one has none.
    fn write_bytes(&self, text: &str, out: &mut Vec<u32>) -> bool {
        let Some(ids) = &self.bytes else {
            return false;
        };
        let length = out.len();
        out.extend(text.bytes().map_while(|byte| ids[usize::from(byte)]));
        let whole = out.len() - length == text.len();
        if !whole {
            out.truncate(length);
        }
        whole
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
    fn bytes_then_the_unknown_token_then_an_error() {
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
