//! The families of vocabularies.

/// The family of a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `SentencePiece` BPE: visible spaces, scores or merges, bytes as tokens.
    Llama,
    /// Byte-level BPE: an alphabet of bytes, merges, words cut by expressions.
    Gpt2,
    /// BPE with visible spaces, merges and bytes as tokens, cut by lines.
    Gemma4,
    /// `WordPiece`: words in small letters, the longest token first.
    Bert,
    /// `SentencePiece` Unigram: visible spaces, the best sum of scores.
    T5,
}
