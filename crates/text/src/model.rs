//! From words to ids: the three ways in which vocabularies are used.

use super::bpe::{self, Bpe};
use super::unigram::{Reached, Unigram};
use super::wordpiece::WordPiece;
use tabla_core::error::Result;

/// One of the three ways.
#[derive(Debug)]
pub(super) enum Model {
    Bpe(Bpe),
    WordPiece(WordPiece),
    Unigram(Unigram),
}

/// What a model writes on while it works, kept from word to word.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    bpe: bpe::Scratch,
    unigram: Vec<Reached>,
}

impl Model {
    /// Appends the ids of a word.
    ///
    /// # Errors
    /// `TooLarge` for a word over the limits, `Tokenizer` for one that cannot be written.
    pub(super) fn encode(
        &self,
        word: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        match self {
            Self::Bpe(model) => model.encode(word, &mut scratch.bpe, out),
            Self::WordPiece(model) => model.encode(word, out),
            Self::Unigram(model) => model.encode(word, &mut scratch.unigram, out),
        }
    }
}
