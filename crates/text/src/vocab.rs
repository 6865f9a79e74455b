//! The vocabulary keys of a GGUF file, and their conversion to a tokenizer specification.

use super::bpe::{Alphabet, IgnoreMerges};
use super::charsmap::Charsmap;
use super::fallback::Unknown;
use super::json::Settings;
use super::kind::VocabKind;
use super::merges::MergeList;
use super::pair::PairFormat;
use super::pattern::Pattern;
use super::pieces::{TOKENS_MAX, TokenType};
use super::spec::{MergeOrder, ModelSpec, TokenizerSpec};
use super::special::AddedTokenOptions;
use super::steps::{CharsmapMatching, Normalization, PrependCondition, Split, Step};
use super::{bert, pre, spm};
use std::borrow::Cow;
use std::collections::HashMap;
use tabla_core::error::{Context, Result, bail};

/// The `tokenizer.ggml.*` keys of a GGUF file.
///
/// Optional ids that are out of range are treated as absent: files use 0xFFFFFFFF for missing
/// tokens.
#[derive(Clone, Debug, Default)]
pub struct Vocab<'a> {
    /// Vocabulary type: `llama`, `gpt2`, `gemma4`, `bert` or `t5`.
    pub model: &'a str,
    /// Name of the pre-tokenizer, for `gpt2`.
    pub pre: Option<&'a str>,
    /// Token texts as in the file.
    pub tokens: Vec<&'a str>,
    /// One per token, or empty. Merge order of `llama`, log-probabilities of `t5`.
    pub scores: Vec<f32>,
    /// One per token, or empty: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: Vec<u32>,
    /// Merges as two parts with a space between them, best first, for `gpt2` and `gemma4`.
    pub merges: Vec<&'a str>,
    /// Beginning-of-sequence token.
    pub bos: Option<u32>,
    /// End-of-sequence token.
    pub eos: Option<u32>,
    /// End-of-turn token.
    pub eot: Option<u32>,
    /// End-of-message token.
    pub eom: Option<u32>,
    /// Unknown token.
    pub unk: Option<u32>,
    /// Token at the start of a text, for `bert`.
    pub cls: Option<u32>,
    /// Token at the end of a text, for `bert`.
    pub sep: Option<u32>,
    /// Token that fills sequences to one length. Only other programs read it.
    pub pad: Option<u32>,
    /// Token of masked words in training. Only other programs read it.
    pub mask: Option<u32>,
    /// Number of token types (segments) of the model.
    pub token_type_count: Option<u32>,
    /// Whether BOS is added before a text.
    pub add_bos: Option<bool>,
    /// Whether EOS is added after a text.
    pub add_eos: Option<bool>,
    /// Whether a separator follows EOS between two texts. Only other programs read it.
    pub add_sep: Option<bool>,
    /// Whether a space is prepended to text, for `llama` and `t5`. Default true.
    pub add_space_prefix: Option<bool>,
    /// Whether consecutive spaces are collapsed, for `t5`. Default false.
    pub remove_extra_whitespaces: Option<bool>,
    /// `SentencePiece` character map, for `t5`; may be empty.
    pub precompiled_charsmap: Vec<u8>,
    /// Whether text is lowercased, for `bert`. Default true.
    pub lowercase: Option<bool>,
    /// Whether combining marks are removed, for `bert`. Defaults to `lowercase`.
    pub strip_accents: Option<bool>,
    /// Settings of a `tokenizer.json` that the other keys cannot express. Tabla's own key
    /// `tokenizer.tabla.json`.
    pub settings: Option<&'a str>,
}

/// Vocabulary types by their names in files.
const KINDS: &[(&str, VocabKind)] = &[
    ("llama", VocabKind::Llama),
    ("gpt2", VocabKind::Gpt2),
    ("gemma4", VocabKind::Gemma4),
    ("bert", VocabKind::Bert),
    ("t5", VocabKind::T5),
];

/// Pre-tokenizers of `gpt2` files with a vocabulary like that of Gemma 4.
const GEMMA_4_PRE_TOKENIZERS: &[&str] = &["gemma4", "granite-embed-multi-311m", "sarvam-moe"];

/// A token that identifies Phi-3. Its special tokens have `rstrip` set in `tokenizer.json`, for
/// which GGUF has no key.
const PHI_3_TOKEN: &str = "<|placeholder1|>";
/// The special tokens of Phi-3 without `rstrip`.
const PHI_3_PLAIN: &[&str] = &["<unk>", "<s>", "<|endoftext|>"];

/// The `SentencePiece` space as a string.
const SPACE: &str = "▁";

impl Vocab<'_> {
    /// Converts the keys to a tokenizer specification.
    ///
    /// # Errors
    /// `Format` for lists of different lengths, `Unsupported` for an unknown model or pre-tokenizer,
    /// `TooLarge` for a vocabulary over the limits.
    pub(super) fn spec(&self) -> Result<TokenizerSpec<'_>> {
        let kind = self.kind()?;
        self.check(kind)?;
        let row = match kind {
            VocabKind::Gpt2 => Some(pre::find(self.pre, self.tokens.len())?),
            _ => None,
        };
        let token_types = self.token_types(kind);
        let id = |id: Option<u32>| id.filter(|&id| (id as usize) < self.tokens.len());
        // SentencePiece's default ids, for files without these keys.
        let default_id = |n: u32, token_type: TokenType| {
            (kind == VocabKind::Llama && token_types.get(n as usize) == Some(&token_type))
                .then_some(n)
        };
        let find = |text: &str| {
            let index = self.tokens.iter().position(|token| *token == text)?;
            u32::try_from(index).ok()
        };
        let bos = self.bos.or_else(|| default_id(1, TokenType::Control));
        let eos = self.eos.or_else(|| default_id(2, TokenType::Control));
        let unk = self.unk.or_else(|| default_id(0, TokenType::Unknown));
        let (bos, unk) = match kind {
            VocabKind::Bert => (
                self.cls.or(bos).or_else(|| find("[CLS]")),
                unk.or_else(|| find("[UNK]")),
            ),
            // All bytes are tokens, so nothing is unknown.
            VocabKind::Gpt2 => (bos, None),
            _ => (bos, unk),
        };
        let (bos, eos, unk) = (id(bos), id(eos), id(unk));
        let add_bos = match kind {
            // The key is false in Gemma 4 files, but the model needs BOS.
            VocabKind::Gemma4 => true,
            VocabKind::Llama | VocabKind::Bert => self.add_bos.unwrap_or(true),
            VocabKind::T5 => self.add_bos.unwrap_or(false),
            VocabKind::Gpt2 => self
                .add_bos
                .unwrap_or_else(|| row.is_some_and(|(_, row)| row.add_bos)),
        };
        let end = match kind {
            VocabKind::Bert => id(self.sep.or_else(|| find("[SEP]"))),
            _ => eos,
        };
        let adds_end = match kind {
            VocabKind::Bert => true,
            _ => self.add_eos.unwrap_or(kind == VocabKind::T5),
        };
        self.with_settings(TokenizerSpec {
            kind,
            pre: row.map(|(name, _)| name),
            steps: self.steps(kind, row.map(|(_, row)| row), &token_types)?,
            normalizer_steps: 0,
            model: self.model_spec(kind, row.map(|(_, row)| row)),
            added_token_options: self.added_token_options(kind, &token_types),
            tokens: self
                .tokens
                .iter()
                .map(|&token| Cow::Borrowed(token))
                .collect(),
            token_types,
            unk,
            before: bos.filter(|_| add_bos).into_iter().collect(),
            after: end.filter(|_| adds_end).into_iter().collect(),
            pair: bos.zip(end).map(|(bos, end)| self.pair(bos, end)),
            bos,
            eos,
            stops: [id(self.eot), id(self.eom)].into_iter().flatten().collect(),
            add_space_prefix: kind == VocabKind::Bert || self.adds_space_prefix(kind),
        })
    }

    /// Replaces what [`Vocab::settings`] describe.
    fn with_settings<'s>(&self, mut spec: TokenizerSpec<'s>) -> Result<TokenizerSpec<'s>> {
        let Some(text) = self.settings else {
            return Ok(spec);
        };
        let settings = Settings::read(text, self.tokens.len(), &mut spec.model);
        let settings = settings.context("tokenizer.tabla.json")?;
        Ok(TokenizerSpec {
            steps: settings.steps,
            normalizer_steps: settings.normalizer_steps,
            added_token_options: settings.added_token_options,
            add_space_prefix: spec.kind == VocabKind::Bert || settings.add_space_prefix,
            pair: settings.pair,
            ..spec
        })
    }

    /// Returns how two texts are joined. The keys that add tokens to a text do not say this in old files.
    fn pair(&self, bos: u32, end: u32) -> PairFormat {
        // Models with one token type are RoBERTa, which separates texts by two tokens.
        let separators = match self.token_type_count {
            Some(1) => 2,
            _ => 1,
        };
        PairFormat {
            before: vec![bos],
            between: vec![end; separators],
            after: vec![end],
            second_type: u32::from(self.token_type_count.is_some_and(|count| count > 1)),
        }
    }

    fn kind(&self) -> Result<VocabKind> {
        if self.model == "gpt2"
            && self
                .pre
                .is_some_and(|pre| GEMMA_4_PRE_TOKENIZERS.contains(&pre))
        {
            return Ok(VocabKind::Gemma4);
        }
        let known = KINDS.iter().find(|(name, _)| *name == self.model);
        let Some(&(_, kind)) = known else {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            bail!(
                Unsupported,
                "tokenizer.ggml.model: unknown model {:?}; known models: {}",
                self.model,
                names.join(", ")
            );
        };
        Ok(kind)
    }

    /// Checks the lengths of the lists.
    fn check(&self, kind: VocabKind) -> Result<()> {
        let tokens = self.tokens.len();
        if tokens == 0 {
            bail!(Format, "tokenizer.ggml.tokens is empty");
        }
        if tokens > TOKENS_MAX {
            bail!(
                TooLarge,
                "tokenizer.ggml.tokens: {tokens} tokens exceed the limit of {TOKENS_MAX}"
            );
        }
        for (name, length) in [
            ("scores", self.scores.len()),
            ("token_type", self.types.len()),
        ] {
            if length != 0 && length != tokens {
                bail!(
                    Format,
                    "tokenizer.ggml.{name}: expected {tokens} entries, got {length}"
                );
            }
        }
        let missing = match kind {
            VocabKind::Gpt2 | VocabKind::Gemma4 if self.merges.is_empty() => "merges",
            VocabKind::T5 if self.scores.is_empty() => "scores",
            _ => return Ok(()),
        };
        bail!(
            Format,
            "tokenizer.ggml.{missing} is missing, required for model {}",
            self.model
        );
    }

    /// Returns the type of each token.
    fn token_types(&self, kind: VocabKind) -> Vec<TokenType> {
        let default_type = |token: &&str| match spm::byte_of(token) {
            Some(_) if kind != VocabKind::Gpt2 => TokenType::Byte,
            _ => TokenType::Normal,
        };
        if self.types.is_empty() {
            return self.tokens.iter().map(default_type).collect();
        }
        self.types
            .iter()
            .map(|&number| TokenType::from_ggml(number))
            .collect()
    }

    fn added_token_options(
        &self,
        kind: VocabKind,
        token_types: &[TokenType],
    ) -> HashMap<u32, AddedTokenOptions> {
        if kind != VocabKind::Llama || !self.tokens.contains(&PHI_3_TOKEN) {
            return HashMap::new();
        }
        let options = AddedTokenOptions {
            rstrip: true,
            ..AddedTokenOptions::default()
        };
        let tokens = (0..).zip(self.tokens.iter().zip(token_types));
        tokens
            .filter(|(_, (token, token_type))| {
                !PHI_3_PLAIN.contains(token)
                    && (token_type.is_control() || **token_type == TokenType::UserDefined)
            })
            .map(|(id, _)| (id, options))
            .collect()
    }

    fn adds_space_prefix(&self, kind: VocabKind) -> bool {
        matches!(kind, VocabKind::Llama | VocabKind::T5) && self.add_space_prefix.unwrap_or(true)
    }

    fn steps(
        &self,
        kind: VocabKind,
        row: Option<&pre::Pre>,
        token_types: &[TokenType],
    ) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        match kind {
            VocabKind::Gpt2 => {
                if let Some(row) = row {
                    steps.extend(row.steps()?);
                }
            }
            VocabKind::Gemma4 => {
                steps.push(escape_spaces()?);
                steps.push(Step::Split(Split::isolated(Pattern::regex(r"\n+")?)));
            }
            VocabKind::Llama | VocabKind::T5 => {
                if !self.precompiled_charsmap.is_empty() {
                    let map = Charsmap::read(&self.precompiled_charsmap)?;
                    steps.push(Step::Normalize(Normalization::Charsmap(
                        map,
                        CharsmapMatching::LongestPrefix,
                    )));
                }
                if kind == VocabKind::T5 && self.remove_extra_whitespaces.unwrap_or(false) {
                    for (regex, with) in [("^ +| +$", ""), (" {2,}", " ")] {
                        let pattern = Pattern::regex(regex)?;
                        steps.push(Step::Normalize(Normalization::Replace(
                            pattern,
                            with.into(),
                        )));
                    }
                }
                steps.push(escape_spaces()?);
                if self.adds_space_prefix(kind) {
                    steps.push(Step::Normalize(Normalization::Prepend(
                        SPACE.into(),
                        PrependCondition::Always,
                    )));
                }
                steps.extend(self.split_at_spaces(token_types)?);
            }
            VocabKind::Bert => {
                let lowercase = self.lowercase.unwrap_or(true);
                steps.extend(bert::clean()?);
                steps.push(bert::separate_ideographs()?);
                if self.strip_accents.unwrap_or(lowercase) {
                    steps.extend(bert::strip_accents()?);
                }
                if lowercase {
                    steps.push(Step::Normalize(Normalization::Lowercase));
                }
                steps.extend(bert::words()?);
            }
        }
        Ok(steps)
    }

    /// Returns a split before spaces, to merge short words, which is faster. It does not change the
    /// result unless a token has a space after another character; returns `None` in that case.
    fn split_at_spaces(&self, token_types: &[TokenType]) -> Result<Option<Step>> {
        let mut texts = self.tokens.iter().zip(token_types);
        let is_exact = self.tokens.contains(&SPACE)
            && !texts.any(|(token, token_type)| token_type.is_text() && spm::spans_words(token));
        if !is_exact {
            return Ok(None);
        }
        Ok(Some(Step::Split(Split::isolated(Pattern::regex(
            "▁*[^▁]+",
        )?))))
    }

    fn model_spec(&self, kind: VocabKind, row: Option<&pre::Pre>) -> ModelSpec<'_> {
        let scores = || self.scores.iter().map(|&score| f64::from(score)).collect();
        match kind {
            VocabKind::Bert => ModelSpec::WordPiece {
                word_chars_max: None,
            },
            VocabKind::T5 => ModelSpec::Unigram {
                scores: scores(),
                unknown: Unknown::Bytes,
            },
            VocabKind::Llama => ModelSpec::Bpe {
                alphabet: Alphabet::Characters,
                order: MergeOrder::Scores(if self.scores.is_empty() {
                    vec![0.0; self.tokens.len()]
                } else {
                    scores()
                }),
                ignore_merges: IgnoreMerges::Never,
                unknown: Unknown::Bytes,
            },
            VocabKind::Gpt2 | VocabKind::Gemma4 => {
                let order = MergeOrder::Merges(MergeList::Joined(&self.merges));
                match row {
                    Some(row) => ModelSpec::Bpe {
                        alphabet: Alphabet::Bytes,
                        order,
                        ignore_merges: row.ignore_merges,
                        unknown: Unknown::Fused,
                    },
                    None => ModelSpec::Bpe {
                        alphabet: Alphabet::Characters,
                        order,
                        ignore_merges: IgnoreMerges::Newlines,
                        unknown: Unknown::Bytes,
                    },
                }
            }
        }
    }
}

/// Replaces spaces with `▁`.
fn escape_spaces() -> Result<Step> {
    let pattern = Pattern::literal(" ")?;
    Ok(Step::Normalize(Normalization::Replace(
        pattern,
        SPACE.into(),
    )))
}
