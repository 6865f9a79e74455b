//! What a tokenizer is built from: plain data, and the checks that its lists fit each other.

use super::pieces::{Role, TOKENS_MAX};
use super::spm;
use crate::error::{Result, bail};
use std::sync::Arc;

/// What a tokenizer is built from, whatever file it came from.
///
/// The fields are those of GGUF's `tokenizer.ggml.*`. Optional ids that are out of range count as
/// absent: files write 0xFFFFFFFF for tokens that they do not have.
#[derive(Clone, Debug, Default)]
pub struct Vocab<'a> {
    /// The kind: `llama`, `gpt2` or `gemma4`.
    pub model: &'a str,
    /// The rule that cuts text into words, of `gpt2`.
    pub pre: Option<&'a str>,
    /// The tokens as written in the file.
    pub tokens: Vec<&'a str>,
    /// One per token, or none at all; `llama` merges by them.
    pub scores: Vec<f32>,
    /// One per token, or none at all: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    pub types: Vec<u32>,
    /// Pairs with a space between them, best first, of `gpt2` and `gemma4`.
    pub merges: Vec<&'a str>,
    /// Begins a text.
    pub bos: Option<u32>,
    /// Ends a text.
    pub eos: Option<u32>,
    /// Ends a turn.
    pub eot: Option<u32>,
    /// Ends a message.
    pub eom: Option<u32>,
    /// Stands for what cannot be written.
    pub unk: Option<u32>,
    /// Whether BOS is put in front.
    pub add_bos: Option<bool>,
    /// Whether EOS is put behind.
    pub add_eos: Option<bool>,
    /// Whether a space is put in front of text, of `llama`.
    pub add_space_prefix: Option<bool>,
}

/// The family of a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `SentencePiece` BPE: visible spaces, scores, bytes as tokens.
    Llama,
    /// Byte-level BPE: an alphabet of bytes, merges, words cut by expressions.
    Gpt2,
    /// BPE with visible spaces, merges and bytes as tokens, cut by lines.
    Gemma4,
}

impl Vocab<'_> {
    /// The kind by its name.
    pub(super) fn kind(&self) -> Result<Kind> {
        Ok(match self.model {
            "llama" => Kind::Llama,
            "gpt2" => Kind::Gpt2,
            "gemma4" => Kind::Gemma4,
            other => bail!(
                Unsupported,
                "tokenizer.ggml.model: {other:?} is not known; known are llama, gpt2, gemma4"
            ),
        })
    }

    /// Checks that the lists fit each other.
    pub(super) fn check(&self, kind: Kind) -> Result<()> {
        let tokens = self.tokens.len();
        if tokens == 0 {
            bail!(Format, "tokenizer.ggml.tokens is empty");
        }
        if tokens > TOKENS_MAX {
            bail!(
                TooLarge,
                "tokenizer.ggml.tokens: {tokens} are over the limit of {TOKENS_MAX}"
            );
        }
        for (name, length) in [
            ("scores", self.scores.len()),
            ("token_type", self.types.len()),
        ] {
            if length != 0 && length != tokens {
                bail!(
                    Format,
                    "tokenizer.ggml.{name}: {length} entries for {tokens} tokens"
                );
            }
        }
        if kind != Kind::Llama && self.merges.is_empty() {
            bail!(
                Format,
                "tokenizer.ggml.merges is missing, which {} needs",
                self.model
            );
        }
        Ok(())
    }

    /// What each token is for.
    pub(super) fn roles(&self, kind: Kind) -> Arc<[Role]> {
        let untyped = |token: &&str| match spm::byte_of(token) {
            Some(_) if kind != Kind::Gpt2 => Role::Byte,
            _ => Role::Normal,
        };
        if self.types.is_empty() {
            return self.tokens.iter().map(untyped).collect();
        }
        self.types
            .iter()
            .map(|&number| Role::from_ggml(number))
            .collect()
    }
}
