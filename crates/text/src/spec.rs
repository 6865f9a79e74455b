//! The specification of a tokenizer, common to GGUF keys and `tokenizer.json`.

use super::bpe::{Alphabet, Bpe, IgnoreMerges, Ranking};
use super::fallback::{Fallback, Unknown};
use super::index::Index;
use super::kind::VocabKind;
use super::merges::{MergeList, MergeTable};
use super::model::Model;
use super::pair::PairFormat;
use super::pieces::{StringTable, StringTableBuilder, TOKEN_BYTES_MAX, TokenType};
use super::special::{AddedTokenOptions, SpecialTokenIndex};
use super::steps::Step;
use super::unigram::Unigram;
use super::wordpiece::WordPiece;
use super::{bytelevel, spm};
use std::borrow::Cow;
use std::collections::HashMap;
use tabla_core::error::{Result, bail};

/// Maximum length of a special token in bytes.
const SPECIAL_BYTES_MAX: usize = 256;
/// Maximum number of special tokens. Gemma has 6,415.
const SPECIALS_MAX: usize = 100_000;

/// Specification of a tokenizer, not yet validated.
#[derive(Debug)]
pub(super) struct TokenizerSpec<'a> {
    pub(super) kind: VocabKind,
    /// Name of the pre-tokenizer (`tokenizer.ggml.pre`).
    pub(super) pre: Option<&'static str>,
    /// Token texts in the form of GGUF.
    pub(super) tokens: Vec<Cow<'a, str>>,
    /// Type of each token.
    pub(super) token_types: Vec<TokenType>,
    /// Non-default options of special tokens, by id.
    pub(super) added_token_options: HashMap<u32, AddedTokenOptions>,
    pub(super) steps: Vec<Step>,
    /// Number of the first steps that are the normalizer.
    pub(super) normalizer_steps: usize,
    pub(super) model: ModelSpec<'a>,
    /// The unknown token.
    pub(super) unk: Option<u32>,
    /// Ids that `add_special` adds before and after a text.
    pub(super) before: Vec<u32>,
    pub(super) after: Vec<u32>,
    /// How two texts are joined; `None` if the vocabulary defines no way.
    pub(super) pair: Option<PairFormat>,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    /// End-of-generation tokens, in addition to those detected by text.
    pub(super) stops: Vec<u32>,
    /// Whether encoding prepends a space to the text.
    pub(super) add_space_prefix: bool,
}

/// Specification of a tokenizer model.
#[derive(Debug)]
pub(super) enum ModelSpec<'a> {
    /// Byte pair encoding.
    Bpe {
        alphabet: Alphabet,
        order: MergeOrder<'a>,
        ignore_merges: IgnoreMerges,
        unknown: Unknown,
    },
    /// Longest match first.
    WordPiece { word_chars_max: Option<usize> },
    /// Best sum of scores, one score per token.
    Unigram { scores: Vec<f64>, unknown: Unknown },
}

/// Order of merges.
#[derive(Debug)]
pub(super) enum MergeOrder<'a> {
    /// A list of merges, best first.
    Merges(MergeList<'a>),
    /// By the score of the resulting token, one score per token.
    Scores(Vec<f64>),
}

impl TokenizerSpec<'_> {
    /// Builds the index of special tokens.
    ///
    /// # Errors
    /// `TooLarge` if the length or the number of special tokens exceeds the limits.
    pub(super) fn specials(&self) -> Result<SpecialTokenIndex> {
        let text = |id: u32| &*self.tokens[id as usize];
        let types = self.token_types.iter().copied();
        specials(types, text, self.added_token_options.clone())
    }

    /// Decodes each token to its bytes.
    pub(super) fn pieces(&self) -> Result<StringTable> {
        let mut pieces = StringTableBuilder::sized_for(self.tokens.len(), TOKEN_BYTES_MAX);
        for (token, token_type) in self.tokens.iter().zip(&self.token_types) {
            pieces.push(|out| match (token_type, self.kind) {
                (TokenType::Control | TokenType::Unknown, _)
                | (TokenType::UserDefined, VocabKind::Gpt2) => {
                    out.extend_from_slice(token.as_bytes());
                }
                (_, VocabKind::Gpt2) => bytelevel::decode(token, out),
                (TokenType::Byte, _) => match spm::byte_of(token) {
                    Some(byte) => out.push(byte),
                    None => out.extend_from_slice(token.as_bytes()),
                },
                _ => spm::decode(token, out),
            })?;
        }
        Ok(pieces.finish())
    }

    /// Builds the model. It never produces a token of `specials`.
    ///
    /// # Errors
    /// `Tokenizer` for merges whose parts or result are not tokens.
    pub(super) fn model(&self, specials: &SpecialTokenIndex) -> Result<Model> {
        let texts = StringTable::from_strings(self.tokens.iter().map(|t| &**t), TOKEN_BYTES_MAX)?;
        let is_text = |id: u32| self.token_types[id as usize].is_text();
        let (index, table) = Index::new(texts, is_text)?;
        let fallback = |index: &Index, unknown: Unknown| {
            let types = self.token_types.iter().copied();
            Fallback::new(unknown, self.unk, index, types)
        };
        Ok(match &self.model {
            ModelSpec::Bpe {
                alphabet,
                order,
                ignore_merges,
                unknown,
            } => {
                let fallback = fallback(&index, *unknown);
                let is_control =
                    |text: &str| specials.id(text).is_some() || spm::byte_of(text).is_some();
                let ranking = match order {
                    MergeOrder::Merges(merges) => {
                        Ranking::Merges(MergeTable::new((&index, &table), merges, is_control)?)
                    }
                    MergeOrder::Scores(scores) => Ranking::Scores(scores.clone().into()),
                };
                Model::Bpe(Bpe::new(
                    index,
                    *alphabet,
                    ranking,
                    *ignore_merges,
                    fallback,
                ))
            }
            ModelSpec::WordPiece { word_chars_max } => {
                Model::WordPiece(WordPiece::new(index, self.unk, *word_chars_max))
            }
            ModelSpec::Unigram { scores, unknown } => {
                let fallback = fallback(&index, *unknown);
                Model::Unigram(Unigram::new(index, scores.clone(), fallback))
            }
        })
    }
}

/// Builds the index of the special tokens of a vocabulary.
///
/// # Errors
/// `TooLarge` if the length or the number of special tokens exceeds the limits.
pub(super) fn specials<'a>(
    types: impl Iterator<Item = TokenType>,
    text: impl Fn(u32) -> &'a str,
    options: HashMap<u32, AddedTokenOptions>,
) -> Result<SpecialTokenIndex> {
    let is_special =
        |token_type: TokenType| token_type.is_control() || token_type == TokenType::UserDefined;
    let listed = (0..).zip(types);
    let listed = listed.filter(|(_, token_type)| is_special(*token_type));
    let listed: Vec<(u32, &str)> = listed.map(|(id, _)| (id, text(id))).collect();
    let count = listed.len();
    if count > SPECIALS_MAX {
        bail!(
            TooLarge,
            "{count} special tokens exceed the limit of {SPECIALS_MAX}"
        );
    }
    if let Some((id, token)) = listed
        .iter()
        .find(|(_, token)| token.len() > SPECIAL_BYTES_MAX)
    {
        let bytes = token.len();
        bail!(
            TooLarge,
            "special token {id}: {bytes} bytes exceed the limit of {SPECIAL_BYTES_MAX}"
        );
    }
    Ok(SpecialTokenIndex::new(listed.into_iter(), options))
}
