//! Vocabulary types.

use serde::{Deserialize, Serialize};

/// Type of a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VocabKind {
    /// `SentencePiece` BPE: spaces as `▁`, scores or merges, byte fallback.
    Llama,
    /// Byte-level BPE: merges, regex pre-tokenizer.
    Gpt2,
    /// BPE with spaces as `▁`, merges and byte fallback, split at newlines.
    Gemma4,
    /// `WordPiece`: longest match first, usually lower case.
    Bert,
    /// `SentencePiece` Unigram: spaces as `▁`, best sum of scores.
    T5,
}
