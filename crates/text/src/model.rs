//! The tokenizer model, which encodes words to ids: BPE, `WordPiece` or Unigram.

use super::bpe::{self, Bpe};
use super::index::Index;
use super::unigram::{BestTokenization, Unigram};
use super::wordpiece::WordPiece;
use tabla_core::error::Result;

/// A tokenizer model.
#[derive(Debug)]
pub(super) enum Model {
    Bpe(Bpe),
    WordPiece(WordPiece),
    Unigram(Unigram),
}

/// Buffers of a model, reused across words.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    bpe: bpe::Scratch,
    unigram: Vec<BestTokenization>,
}

impl Model {
    /// Appends the ids of a word.
    ///
    /// # Errors
    /// `TooLarge` for a word over the limits, `Tokenizer` for one that cannot be encoded.
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

    /// Returns the index of the token texts.
    pub(super) fn index(&self) -> &Index {
        match self {
            Self::Bpe(model) => &model.index,
            Self::WordPiece(model) => &model.index,
            Self::Unigram(model) => &model.index,
        }
    }

    /// Returns the size of the tables in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Bpe(model) => model.memory_bytes(),
            Self::WordPiece(model) => model.memory_bytes(),
            Self::Unigram(model) => model.memory_bytes(),
        }
    }
}
