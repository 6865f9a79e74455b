//! What every file's tokenizer comes down to, be it keys of GGUF or a `tokenizer.json`.

use super::bpe::{self, Alphabet, Bpe, KnownWords, Ranking};
use super::fallback::Fallback;
use super::index::Index;
use super::kind::Kind;
use super::model::Model;
use super::pieces::{Blob, Role, TOKEN_BYTES_MAX};
use super::special::{Reach, Specials};
use super::steps::Step;
use super::unigram::Unigram;
use super::wordpiece::WordPiece;
use super::{bytelevel, spm};
use std::borrow::Cow;
use std::collections::HashMap;
use tabla_core::error::{Result, bail};

/// The longest spelling of a special token; bounds the search for them.
const SPECIAL_BYTES_MAX: usize = 256;
/// The most special tokens; Gemma has 6,415.
const SPECIALS_MAX: usize = 100_000;

/// A tokenizer, as data that was not yet held together.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) kind: Kind,
    /// The name of the rule that cuts words, where it has one.
    pub(super) pre: Option<&'static str>,
    /// Tokens in the spelling of GGUF.
    pub(super) tokens: Vec<Cow<'a, str>>,
    /// One for each token.
    pub(super) roles: Vec<Role>,
    /// Of special tokens that are not like most.
    pub(super) reach: HashMap<u32, Reach>,
    pub(super) steps: Vec<Step>,
    pub(super) method: Method<'a>,
    /// Stands for what cannot be written.
    pub(super) unk: Option<u32>,
    /// What encoding puts in front and behind.
    pub(super) before: Vec<u32>,
    pub(super) after: Vec<u32>,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    /// Tokens that end an answer, beside those that are known by their spelling.
    pub(super) stops: Vec<u32>,
    /// Whether encoding begins a text with a space that is not in it.
    pub(super) begins_with_space: bool,
}

/// How words become ids.
#[derive(Debug)]
pub(super) enum Method<'a> {
    /// Byte pair encoding.
    Bpe {
        alphabet: Alphabet,
        order: Order<'a>,
        known_words: KnownWords,
        unknown: Unknown,
    },
    /// The longest token first.
    WordPiece { word_chars_max: Option<usize> },
    /// The best sum of these scores, one for each token.
    Unigram { scores: Vec<f64>, unknown: Unknown },
}

/// Which pair is merged first.
#[derive(Debug)]
pub(super) enum Order<'a> {
    /// The first of these.
    List(Vec<(&'a str, &'a str)>),
    /// The one with the best of these scores, one for each token.
    Scores(Vec<f64>),
}

/// What becomes of characters that are in no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The tokens of their bytes, or one unknown token for all neighbours.
    Bytes,
    /// One unknown token for all neighbours.
    Fused,
    /// An unknown token for each.
    Single,
}

impl Plan<'_> {
    /// Special tokens by their spelling.
    ///
    /// # Errors
    /// `TooLarge` for a spelling or a number of them over the limits.
    pub(super) fn specials(&self) -> Result<Specials> {
        let is_special = |role: Role| role.is_markup() || role == Role::UserDefined;
        let listed = (0..).zip(self.tokens.iter().zip(&self.roles));
        let listed = listed.filter(|(_, (_, role))| is_special(**role));
        let count = listed.clone().count();
        if count > SPECIALS_MAX {
            bail!(
                TooLarge,
                "{count} special tokens are over the limit of {SPECIALS_MAX}"
            );
        }
        let long = |text: &str| text.len() > SPECIAL_BYTES_MAX;
        if let Some((id, (token, _))) = listed.clone().find(|(_, (token, _))| long(token)) {
            let bytes = token.len();
            bail!(
                TooLarge,
                "special token {id}: {bytes} bytes are over the limit of {SPECIAL_BYTES_MAX}"
            );
        }
        let tokens = listed.map(|(id, (token, _))| (id, &**token));
        Ok(Specials::new(tokens, self.reach.clone()))
    }

    /// What each token stands for.
    pub(super) fn pieces(&self) -> Result<Blob> {
        let mut pieces = Blob::sized_for(self.tokens.len(), TOKEN_BYTES_MAX);
        for (token, role) in self.tokens.iter().zip(&self.roles) {
            pieces.push(|out| match (role, self.kind) {
                (Role::Control | Role::Unknown, _) | (Role::UserDefined, Kind::Gpt2) => {
                    out.extend_from_slice(token.as_bytes());
                }
                (_, Kind::Gpt2) => bytelevel::decode(token, out),
                (Role::Byte, _) => match spm::byte_of(token) {
                    Some(byte) => out.push(byte),
                    None => out.extend_from_slice(token.as_bytes()),
                },
                _ => spm::decode(token, out),
            })?;
        }
        Ok(pieces)
    }

    /// What encodes words; text can become `specials` through none of it.
    ///
    /// # Errors
    /// `Tokenizer` for merges that do not fit the tokens.
    pub(super) fn model(self, specials: &Specials) -> Result<Model> {
        let texts = Blob::of(self.tokens.iter().map(|t| &**t), TOKEN_BYTES_MAX)?;
        let index = Index::new(texts, |id| self.roles[id as usize].is_text());
        let fallback = |index: &Index, unknown: Unknown| Fallback {
            bytes: (unknown == Unknown::Bytes).then(|| Fallback::byte_tokens(index, &self.roles)),
            unk: self.unk,
            fuse: unknown != Unknown::Single,
        };
        Ok(match self.method {
            Method::Bpe {
                alphabet,
                order,
                known_words,
                unknown,
            } => {
                let fallback = fallback(&index, unknown);
                let is_markup =
                    |text: &str| specials.id(text).is_some() || spm::byte_of(text).is_some();
                let ranking = match order {
                    Order::List(merges) => bpe::ranks(&index, &merges, is_markup)?,
                    Order::Scores(scores) => Ranking::Scores(scores),
                };
                Model::Bpe(Bpe::new(index, alphabet, ranking, known_words, fallback))
            }
            Method::WordPiece { word_chars_max } => {
                Model::WordPiece(WordPiece::new(index, self.unk, word_chars_max))
            }
            Method::Unigram { scores, unknown } => {
                let fallback = fallback(&index, unknown);
                Model::Unigram(Unigram::new(index, scores, fallback))
            }
        })
    }
}
