//! `WordPiece`: the longest token that begins a word, then the longest that goes on, to its end.
//!
//! Devlin et al. 2018. Tokens are spelt as GGUF does: `▁` in front of those that begin a word, nothing
//! in front of those that go on.

use super::index::Index;
use super::spm::SPACE;
use tabla_core::error::{Result, bail};

/// Longer words are unknown, as in BERT.
const WORD_CHARS_MAX: usize = 100;

/// The tokens and the one for words that they cannot write.
#[derive(Debug)]
pub(super) struct WordPiece {
    index: Index,
    unk: Option<u32>,
    word_chars_max: usize,
    token_bytes_max: usize,
}

impl WordPiece {
    /// `word_chars_max` is 100 where nothing else is said.
    pub(super) fn new(index: Index, unk: Option<u32>, word_chars_max: Option<usize>) -> Self {
        let lengths = index.ids().map(|id| index.bytes(id).len());
        Self {
            token_bytes_max: lengths.max().unwrap_or(0),
            word_chars_max: word_chars_max.unwrap_or(WORD_CHARS_MAX),
            index,
            unk,
        }
    }

    /// Appends the ids of a word.
    ///
    /// # Errors
    /// `Tokenizer` where the word cannot be written and nothing stands for that.
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

    /// Whether tokens were found up to the end.
    fn pieces(&self, word: &str, out: &mut Vec<u32>) -> bool {
        let word = format!("{SPACE}{word}");
        let mut rest = word.as_str();
        while !rest.is_empty() {
            let longest = rest.floor_char_boundary(self.token_bytes_max);
            let ends = rest[..longest].char_indices().rev();
            let found = ends
                .map(|(at, c)| at + c.len_utf8())
                .find_map(|end| Some((end, self.index.get(&rest[..end])?)));
            let Some((end, id)) = found else {
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
    use super::super::pieces::Blob;
    use super::*;

    #[test]
    fn the_longest_token_from_the_left() {
        let tokens = ["[UNK]", "▁a", "▁ab", "b", "bc", "c", "▁日"];
        let index = Index::new(Blob::of(tokens, 9).unwrap(), |id| id != 0);
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
