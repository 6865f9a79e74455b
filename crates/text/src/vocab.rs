//! What a tokenizer of a GGUF file is built from: plain data, and what the kinds make of it.

use super::bpe::{self, Alphabet, KnownWords};
use super::charsmap::Charsmap;
use super::kind::Kind;
use super::pattern::Pattern;
use super::pieces::{Role, TOKENS_MAX};
use super::plan::{Method, Order, Plan, Unknown};
use super::special::{Reach, Space};
use super::steps::{Cut, Edit, Reading, Step, When};
use super::{bert, pre, spm};
use std::borrow::Cow;
use std::collections::HashMap;
use tabla_core::error::{Context, Result, bail};

/// The keys of a file.
///
/// The fields are those of GGUF's `tokenizer.ggml.*`. Optional ids that are out of range count as
/// absent: files write 0xFFFFFFFF for tokens that they do not have.
#[derive(Clone, Debug, Default)]
pub struct Vocab<'a> {
    /// The kind: `llama`, `gpt2`, `gemma4`, `bert` or `t5`.
    pub model: &'a str,
    /// The rule that cuts text into words, of `gpt2`.
    pub pre: Option<&'a str>,
    /// The tokens as written in the file.
    pub tokens: Vec<&'a str>,
    /// One per token, or none at all; `llama` merges by them, `t5` adds them up.
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
    /// Begins a text, of `bert`.
    pub cls: Option<u32>,
    /// Ends a text, of `bert`.
    pub sep: Option<u32>,
    /// Whether BOS is put in front.
    pub add_bos: Option<bool>,
    /// Whether EOS is put behind.
    pub add_eos: Option<bool>,
    /// Whether a space is put in front of text, of `llama` and `t5`.
    pub add_space_prefix: Option<bool>,
    /// Whether runs of spaces become one, of `t5`.
    pub remove_extra_whitespaces: Option<bool>,
    /// Which characters become which others, of `t5`; empty if none.
    pub precompiled_charsmap: Vec<u8>,
    /// Whether letters become small, of `bert`.
    pub lowercase: Option<bool>,
    /// Whether letters lose their marks, of `bert`; as `lowercase` where the file does not say.
    pub strip_accents: Option<bool>,
}

/// Kinds by their name in files.
const KINDS: &[(&str, Kind)] = &[
    ("llama", Kind::Llama),
    ("gpt2", Kind::Gpt2),
    ("gemma4", Kind::Gemma4),
    ("bert", Kind::Bert),
    ("t5", Kind::T5),
];

/// Rules of `gpt2` files whose vocabulary is of the kind of Gemma 4.
const GEMMA_4_RULES: &[&str] = &["gemma4", "granite-embed-multi-311m", "sarvam-moe"];

/// A token that only Phi-3 has. There, white space behind special tokens goes away, which its
/// `tokenizer.json` says for each, and GGUF has no key for.
const PHI_3_TOKEN: &str = "<|placeholder1|>";
/// The special tokens of Phi-3 for which it stays.
const PHI_3_PLAIN: &[&str] = &["<unk>", "<s>", "<|endoftext|>"];

/// The visible space, as a text.
const SPACE: &str = "▁";

impl<'a> Vocab<'a> {
    /// What the keys come down to.
    ///
    /// # Errors
    /// `Format` for lists that do not fit each other, `Unsupported` for a kind or a rule that is not
    /// known, `TooLarge` for a vocabulary over the limits.
    pub(super) fn plan(&self) -> Result<Plan<'a>> {
        let kind = self.kind()?;
        self.check(kind)?;
        let row = match kind {
            Kind::Gpt2 => Some(pre::find(self.pre, self.tokens.len())?),
            _ => None,
        };
        let roles = self.roles(kind);
        let id = |id: Option<u32>| id.filter(|&id| (id as usize) < self.tokens.len());
        // What SentencePiece writes first, for files that do not say.
        let usual = |n: u32, role: Role| {
            (kind == Kind::Llama && roles.get(n as usize) == Some(&role)).then_some(n)
        };
        let named = |name: &str| {
            let place = self.tokens.iter().position(|token| *token == name)?;
            u32::try_from(place).ok()
        };
        let bos = self.bos.or_else(|| usual(1, Role::Control));
        let eos = self.eos.or_else(|| usual(2, Role::Control));
        let unk = self.unk.or_else(|| usual(0, Role::Unknown));
        let (bos, unk) = match kind {
            Kind::Bert => (
                self.cls.or(bos).or_else(|| named("[CLS]")),
                unk.or_else(|| named("[UNK]")),
            ),
            // All bytes are tokens.
            Kind::Gpt2 => (bos, None),
            _ => (bos, unk),
        };
        let (bos, eos, unk) = (id(bos), id(eos), id(unk));
        let add_bos = match kind {
            // Its files say false by mistake; the model needs it.
            Kind::Gemma4 => true,
            Kind::Llama | Kind::Bert => self.add_bos.unwrap_or(true),
            Kind::T5 => self.add_bos.unwrap_or(false),
            Kind::Gpt2 => self
                .add_bos
                .unwrap_or_else(|| row.is_some_and(|(_, row)| row.add_bos)),
        };
        let after = if kind == Kind::Bert {
            // Whatever `add_sep_token` says: that is of what stands between two texts.
            id(self.sep.or_else(|| named("[SEP]")))
        } else {
            eos.filter(|_| self.add_eos.unwrap_or(kind == Kind::T5))
        };
        Ok(Plan {
            kind,
            pre: row.map(|(name, _)| name),
            steps: self.steps(kind, row.map(|(_, row)| row), &roles)?,
            method: self.method(kind, row.map(|(_, row)| row))?,
            reach: self.reach(kind, &roles),
            tokens: self
                .tokens
                .iter()
                .map(|&token| Cow::Borrowed(token))
                .collect(),
            roles,
            unk,
            before: bos.filter(|_| add_bos).into_iter().collect(),
            after: after.into_iter().collect(),
            bos,
            eos,
            stops: [id(self.eot), id(self.eom)].into_iter().flatten().collect(),
            begins_with_space: kind == Kind::Bert || self.begins_with_space(kind),
        })
    }

    fn kind(&self) -> Result<Kind> {
        if self.model == "gpt2" && self.pre.is_some_and(|pre| GEMMA_4_RULES.contains(&pre)) {
            return Ok(Kind::Gemma4);
        }
        let known = KINDS.iter().find(|(name, _)| *name == self.model);
        let Some(&(_, kind)) = known else {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            bail!(
                Unsupported,
                "tokenizer.ggml.model: {:?} is not known; known are {}",
                self.model,
                names.join(", ")
            );
        };
        Ok(kind)
    }

    /// Checks that the lists fit each other.
    fn check(&self, kind: Kind) -> Result<()> {
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
        let missing = match kind {
            Kind::Gpt2 | Kind::Gemma4 if self.merges.is_empty() => "merges",
            Kind::T5 if self.scores.is_empty() => "scores",
            _ => return Ok(()),
        };
        bail!(
            Format,
            "tokenizer.ggml.{missing} is missing, which {} needs",
            self.model
        );
    }

    /// What each token is for.
    fn roles(&self, kind: Kind) -> Vec<Role> {
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

    fn reach(&self, kind: Kind, roles: &[Role]) -> HashMap<u32, Reach> {
        if kind != Kind::Llama || !self.tokens.contains(&PHI_3_TOKEN) {
            return HashMap::new();
        }
        let reach = Reach {
            right: Space::Goes,
            ..Reach::default()
        };
        let tokens = (0..).zip(self.tokens.iter().zip(roles));
        tokens
            .filter(|(_, (token, role))| {
                !PHI_3_PLAIN.contains(token) && (role.is_markup() || **role == Role::UserDefined)
            })
            .map(|(id, _)| (id, reach))
            .collect()
    }

    fn begins_with_space(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Llama | Kind::T5) && self.add_space_prefix.unwrap_or(true)
    }

    fn steps(&self, kind: Kind, row: Option<&pre::Pre>, roles: &[Role]) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        match kind {
            Kind::Gpt2 => {
                if let Some(row) = row {
                    steps.extend(row.steps()?);
                }
            }
            Kind::Gemma4 => {
                steps.push(visible_spaces()?);
                steps.push(Step::Cut(Cut::isolated(Pattern::regex(r"\n+")?)));
            }
            Kind::Llama | Kind::T5 => {
                if !self.precompiled_charsmap.is_empty() {
                    let map = Charsmap::read(&self.precompiled_charsmap)?;
                    steps.push(Step::Edit(Edit::Charsmap(map, Reading::Longest)));
                }
                if kind == Kind::T5 && self.remove_extra_whitespaces.unwrap_or(false) {
                    for (regex, with) in [("^ +| +$", ""), (" {2,}", " ")] {
                        let pattern = Pattern::regex(regex)?;
                        steps.push(Step::Edit(Edit::Replace(pattern, with.into())));
                    }
                }
                steps.push(visible_spaces()?);
                if self.begins_with_space(kind) {
                    steps.push(Step::Edit(Edit::Prepend(SPACE.into(), When::Always)));
                }
                steps.extend(self.words_of_spaces(roles)?);
            }
            Kind::Bert => {
                let lowercase = self.lowercase.unwrap_or(true);
                steps.extend(bert::clean()?);
                steps.push(bert::part_ideographs()?);
                if self.strip_accents.unwrap_or(lowercase) {
                    steps.extend(bert::strip_accents()?);
                }
                if lowercase {
                    steps.push(Step::Edit(Edit::Lowercase));
                }
                steps.extend(bert::words()?);
            }
        }
        Ok(steps)
    }

    /// A cut in front of spaces, which changes nothing where no token goes on behind one: short words
    /// are merged in less time.
    fn words_of_spaces(&self, roles: &[Role]) -> Result<Option<Step>> {
        let mut texts = self.tokens.iter().zip(roles);
        let is_exact = self.tokens.contains(&SPACE)
            && !texts.any(|(token, role)| role.is_text() && spm::goes_over_spaces(token));
        if !is_exact {
            return Ok(None);
        }
        Ok(Some(Step::Cut(Cut::isolated(Pattern::regex("▁*[^▁]+")?))))
    }

    fn method(&self, kind: Kind, row: Option<&pre::Pre>) -> Result<Method<'a>> {
        let scores = || self.scores.iter().map(|&score| f64::from(score)).collect();
        Ok(match kind {
            Kind::Bert => Method::WordPiece {
                word_chars_max: None,
            },
            Kind::T5 => Method::Unigram {
                scores: scores(),
                unknown: Unknown::Bytes,
            },
            Kind::Llama => Method::Bpe {
                alphabet: Alphabet::Characters,
                order: Order::Scores(if self.scores.is_empty() {
                    vec![0.0; self.tokens.len()]
                } else {
                    scores()
                }),
                known_words: KnownWords::Merged,
                unknown: Unknown::Bytes,
            },
            Kind::Gpt2 | Kind::Gemma4 => {
                let merges = self
                    .merges
                    .iter()
                    .enumerate()
                    .map(|(n, merge)| bpe::parts(merge).context(format_args!("merge {n}")));
                let order = Order::List(merges.collect::<Result<_>>()?);
                match row {
                    Some(row) => Method::Bpe {
                        alphabet: Alphabet::Bytes,
                        order,
                        known_words: row.known_words,
                        unknown: Unknown::Fused,
                    },
                    None => Method::Bpe {
                        alphabet: Alphabet::Characters,
                        order,
                        known_words: KnownWords::WholeLineEnds,
                        unknown: Unknown::Bytes,
                    },
                }
            }
        })
    }
}

/// Spaces become visible.
fn visible_spaces() -> Result<Step> {
    let pattern = Pattern::text(" ")?;
    Ok(Step::Edit(Edit::Replace(pattern, SPACE.into())))
}
