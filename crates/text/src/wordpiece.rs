//! `WordPiece`: greedy longest match from the start of a word.
//!
//! Devlin et al. 2018. Token texts have the form of GGUF: `▁` before tokens that start a word, no
//! prefix for those that continue one.

use super::index::Index;
use super::spm::SPACE;
use tabla_core::error::{Result, bail};

/// Default maximum word length in characters, as in BERT. Longer words are unknown.
const WORD_CHARS_MAX: usize = 100;

/// A `WordPiece` model.
#[derive(Debug)]
pub(super) struct WordPiece {
    pub(super) index: Index,
    pub(super) unk: Option<u32>,
    pub(super) word_chars_max: usize,
    token_bytes_max: usize,
}

impl WordPiece {
    /// Creates a model. `word_chars_max` defaults to 100.
    pub(super) fn new(index: Index, unk: Option<u32>, word_chars_max: Option<usize>) -> Self {
        let lengths = index.ids().map(|id| index.bytes(id).len());
        Self {
            token_bytes_max: lengths.max().unwrap_or(0),
            word_chars_max: word_chars_max.unwrap_or(WORD_CHARS_MAX),
            index,
            unk,
        }
    }

    /// Returns the size of the tables in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes()
    }

    /// Appends the ids of a word.
    ///
    /// # Errors
    /// `Tokenizer` for an unknown word if there is no unknown token.
    pub(super) fn encode(&self, word: &str, out: &mut Vec<u32>) -> Result<()> {
        let length = out.len();
        if word.chars().nth(self.word_chars_max).is_none() && self.pieces(word, out) {
            return Ok(());
        }
        out.truncate(length);
        let Some(unk) = self.unk else {
            bail!(Tokenizer, "the vocabulary has no tokens for {word:?}");
        };
        out.push(unk);
        Ok(())
    }

    /// Appends the tokens of a word. Returns false if the word has no tokenization.
    fn pieces(&self, word: &str, out: &mut Vec<u32>) -> bool {
        let word = format!("{SPACE}{word}");
        let mut rest = word.as_str();
        while !rest.is_empty() {
            let longest = rest.floor_char_boundary(self.token_bytes_max);
            let ends = rest[..longest].char_indices().rev();
            let longest = ends
                .map(|(at, c)| at + c.len_utf8())
                .find_map(|end| Some((end, self.index.get(&rest[..end])?)));
            let Some((end, id)) = longest else {
                return false;
            };
            out.push(id);
            rest = &rest[end..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::pieces::StringTable;
    use super::*;

    #[test]
    fn matches_longest_tokens_from_left() {
        let tokens = ["[UNK]", "▁a", "▁ab", "b", "bc", "c", "▁日"];
        let index = Index::new(StringTable::from_strings(tokens, 9).unwrap(), |id| id != 0)
            .unwrap()
            .0;
        let model = WordPiece::new(index, Some(0), Some(4));
        let encode = |word: &str| {
            let mut ids = vec![9];
            model.encode(word, &mut ids).unwrap();
            ids
        };
        assert_eq!(encode("abc"), [9, 2, 5]);
        assert_eq!(encode("abbc"), [9, 2, 4]);
        assert_eq!(encode("abx"), [9, 0]);
        assert_eq!(encode("日"), [9, 6]);
        assert_eq!(encode("本"), [9, 0]);
        assert_eq!(encode("abccc"), [9, 0], "a long word is unknown");
    }
}
