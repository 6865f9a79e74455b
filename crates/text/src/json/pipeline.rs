//! What a text goes through, as `tokenizer.json` says it, in the steps that there are here.

use super::parse::List;
use crate::bert;
use crate::bpe::Alphabet;
use crate::charsmap::Charsmap;
use crate::pattern::Pattern;
use crate::pre::GPT_2;
use crate::spm::SPACE;
use crate::steps::{Cut, Edit, Form, Matches, Reading, Step, When};
use serde::Deserialize;
use std::collections::BTreeMap;
use tabla_core::error::{Context, Result, bail};

/// The most steps of a pipeline; five are many.
const STEPS_MAX: usize = 64;
/// The longest text that a step writes: bounds how a text grows.
const WRITTEN_BYTES_MAX: usize = 256;
/// What Hugging Face's `Nmt` takes away, and what becomes a space there.
const NMT_GONE: &str = r"[\x01-\x08\x0b\x0e-\x1f\x7f\x{8f}\x{9f}]";
const NMT_SPACES: &str =
    r"[\t\n\x0c\r\x{1680}\x{200b}-\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}\x{fffd}]";

/// How characters become others.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(super) enum Normalizer {
    Sequence {
        normalizers: List<Self, STEPS_MAX>,
    },
    #[serde(rename = "BertNormalizer")]
    Bert {
        clean_text: Option<bool>,
        handle_chinese_chars: Option<bool>,
        strip_accents: Option<bool>,
        lowercase: Option<bool>,
    },
    #[serde(rename = "NFC")]
    Nfc,
    #[serde(rename = "NFD")]
    Nfd,
    #[serde(rename = "NFKC")]
    Nfkc,
    #[serde(rename = "NFKD")]
    Nfkd,
    Nmt,
    Lowercase,
    StripAccents,
    Strip {
        strip_left: Option<bool>,
        strip_right: Option<bool>,
    },
    Prepend {
        prepend: String,
    },
    Replace {
        pattern: Looked,
        content: String,
    },
    Precompiled {
        precompiled_charsmap: Option<String>,
    },
}

/// How a text becomes words.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(super) enum PreTokenizer {
    Sequence {
        pretokenizers: List<Self, STEPS_MAX>,
    },
    ByteLevel {
        add_prefix_space: Option<bool>,
        use_regex: Option<bool>,
    },
    Metaspace {
        replacement: char,
        add_prefix_space: Option<bool>,
        prepend_scheme: Option<PrependScheme>,
        split: Option<bool>,
    },
    Split {
        pattern: Looked,
        behavior: Behavior,
        invert: Option<bool>,
    },
    Punctuation {
        behavior: Option<Behavior>,
    },
    Digits {
        individual_digits: Option<bool>,
    },
    CharDelimiterSplit {
        delimiter: char,
    },
    #[serde(rename = "BertPreTokenizer")]
    Bert,
    Whitespace,
    WhitespaceSplit,
}

/// What goes in front and behind.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(super) enum PostProcessor {
    Sequence {
        processors: List<Self, STEPS_MAX>,
    },
    ByteLevel {},
    TemplateProcessing {
        single: List<Part, STEPS_MAX>,
        special_tokens: BTreeMap<String, Ids>,
    },
    BertProcessing {
        sep: (String, u32),
        cls: (String, u32),
    },
    RobertaProcessing {
        sep: (String, u32),
        cls: (String, u32),
    },
}

/// What is looked for.
#[derive(Debug, Deserialize)]
pub(super) enum Looked {
    String(String),
    Regex(String),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PrependScheme {
    First,
    Never,
    Always,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Behavior {
    #[serde(alias = "Removed")]
    Removed,
    #[serde(alias = "Isolated")]
    Isolated,
    #[serde(alias = "MergedWithPrevious")]
    MergedWithPrevious,
    #[serde(alias = "MergedWithNext")]
    MergedWithNext,
    #[serde(alias = "Contiguous")]
    Contiguous,
}

/// A place of a template.
#[derive(Debug, Deserialize)]
pub(super) enum Part {
    SpecialToken { id: String },
    Sequence {},
}

/// The ids of a special token of a template.
#[derive(Debug, Deserialize)]
pub(super) struct Ids {
    ids: List<u32, STEPS_MAX>,
}

/// The steps, and the alphabet in which words are written behind them.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) steps: Vec<Step>,
    pub(super) alphabet: Alphabet,
}

impl Pipeline {
    /// What a file says, in steps.
    ///
    /// # Errors
    /// `Unsupported` for an expression or an order that is not known, `TooLarge` for a text that is
    /// too long to be written for each match.
    pub(super) fn new(
        normalizer: Option<&Normalizer>,
        pre_tokenizer: Option<&PreTokenizer>,
    ) -> Result<Self> {
        let mut pipeline = Self {
            steps: Vec::new(),
            alphabet: Alphabet::Characters,
        };
        if let Some(normalizer) = normalizer {
            pipeline.normalize(normalizer).context("normalizer")?;
        }
        if let Some(pre_tokenizer) = pre_tokenizer {
            pipeline.cut(pre_tokenizer).context("pre_tokenizer")?;
        }
        Ok(pipeline)
    }

    /// Whether a text begins with a space that is not in it.
    pub(super) fn begins_with_space(&self) -> bool {
        let puts_space = |step: &Step| matches!(step, Step::Edit(Edit::Prepend(text, _)) if matches!(&**text, " " | "▁"));
        self.steps.iter().any(puts_space)
    }

    fn push(&mut self, step: Step) -> Result<()> {
        if self.steps.len() >= STEPS_MAX {
            bail!(TooLarge, "more than {STEPS_MAX} steps");
        }
        self.steps.push(step);
        Ok(())
    }

    fn edit(&mut self, edit: Edit) -> Result<()> {
        self.push(Step::Edit(edit))
    }

    fn normalize(&mut self, normalizer: &Normalizer) -> Result<()> {
        match normalizer {
            Normalizer::Sequence { normalizers } => {
                normalizers.0.iter().try_for_each(|n| self.normalize(n))
            }
            Normalizer::Bert {
                clean_text,
                handle_chinese_chars,
                strip_accents,
                lowercase,
            } => {
                let lowercase = lowercase.unwrap_or(true);
                let mut steps = Vec::new();
                if clean_text.unwrap_or(true) {
                    steps.extend(bert::clean()?);
                }
                if handle_chinese_chars.unwrap_or(true) {
                    steps.push(bert::part_ideographs()?);
                }
                if strip_accents.unwrap_or(lowercase) {
                    steps.extend(bert::strip_accents()?);
                }
                if lowercase {
                    steps.push(Step::Edit(Edit::Lowercase));
                }
                steps.into_iter().try_for_each(|step| self.push(step))
            }
            Normalizer::Nfc => self.edit(Edit::Form(Form::Nfc)),
            Normalizer::Nfd => self.edit(Edit::Form(Form::Nfd)),
            Normalizer::Nfkc => self.edit(Edit::Form(Form::Nfkc)),
            Normalizer::Nfkd => self.edit(Edit::Form(Form::Nfkd)),
            Normalizer::Nmt => {
                self.edit(Edit::Replace(Pattern::regex(NMT_GONE)?, "".into()))?;
                self.edit(Edit::Replace(Pattern::regex(NMT_SPACES)?, " ".into()))
            }
            Normalizer::Lowercase => self.edit(Edit::Lowercase),
            Normalizer::StripAccents => {
                self.edit(Edit::Replace(Pattern::regex(r"\p{M}")?, "".into()))
            }
            Normalizer::Strip {
                strip_left,
                strip_right,
            } => {
                if strip_left.unwrap_or(true) {
                    self.edit(Edit::TrimStart)?;
                }
                if strip_right.unwrap_or(true) {
                    self.edit(Edit::TrimEnd)?;
                }
                Ok(())
            }
            Normalizer::Prepend { prepend } => {
                self.edit(Edit::Prepend(written(prepend)?, When::Always))
            }
            Normalizer::Replace { pattern, content } => {
                self.edit(Edit::Replace(pattern.compile()?, written(content)?))
            }
            Normalizer::Precompiled {
                precompiled_charsmap,
            } => {
                let Some(text) = precompiled_charsmap else {
                    return Ok(());
                };
                let map = Charsmap::read(&base64(text)?)?;
                self.edit(Edit::Charsmap(map, Reading::Graphemes))
            }
        }
    }

    fn cut(&mut self, pre_tokenizer: &PreTokenizer) -> Result<()> {
        if self.alphabet == Alphabet::Bytes {
            bail!(Unsupported, "a step behind ByteLevel is not known");
        }
        let cut = match pre_tokenizer {
            PreTokenizer::Sequence { pretokenizers } => {
                return pretokenizers.0.iter().try_for_each(|p| self.cut(p));
            }
            PreTokenizer::ByteLevel {
                add_prefix_space,
                use_regex,
            } => return self.byte_level(*add_prefix_space, *use_regex),
            PreTokenizer::Metaspace {
                replacement,
                add_prefix_space,
                prepend_scheme,
                split,
            } => {
                let scheme = match add_prefix_space {
                    Some(false) => PrependScheme::Never,
                    _ => prepend_scheme.unwrap_or(PrependScheme::Always),
                };
                return self.metaspace(*replacement, scheme, *split);
            }
            PreTokenizer::Split {
                pattern,
                behavior,
                invert,
            } => Cut {
                pattern: pattern.compile()?,
                matches: behavior.matches(),
                invert: invert.unwrap_or(false),
            },
            PreTokenizer::Punctuation { behavior } => {
                let matches = behavior.map_or(Matches::Words, Behavior::matches);
                cut(bert::PUNCTUATION, matches)?
            }
            PreTokenizer::Digits { individual_digits } => {
                let matches = match individual_digits {
                    Some(true) => Matches::Words,
                    _ => Matches::Contiguous,
                };
                cut(r"\p{N}", matches)?
            }
            PreTokenizer::CharDelimiterSplit { delimiter } => Cut {
                pattern: Pattern::text(delimiter.encode_utf8(&mut [0; 4]))?,
                matches: Matches::Removed,
                invert: false,
            },
            PreTokenizer::Bert => {
                return bert::words()?
                    .into_iter()
                    .try_for_each(|step| self.push(step));
            }
            PreTokenizer::Whitespace => Cut {
                invert: true,
                ..cut(r"\w+|[^\w\s]+", Matches::Removed)?
            },
            PreTokenizer::WhitespaceSplit => cut(r"\s", Matches::Removed)?,
        };
        self.push(Step::Cut(cut))
    }

    /// Words are those of GPT-2, and what follows is written in bytes.
    fn byte_level(&mut self, prefix: Option<bool>, regex: Option<bool>) -> Result<()> {
        if prefix.unwrap_or(true) {
            self.edit(Edit::Prepend(" ".into(), When::Absent))?;
        }
        if regex.unwrap_or(true) {
            self.push(Step::Cut(Cut::isolated(Pattern::regex(GPT_2)?)))?;
        }
        self.alphabet = Alphabet::Bytes;
        Ok(())
    }

    /// Spaces become visible, one goes in front, and each begins a word.
    fn metaspace(&mut self, space: char, scheme: PrependScheme, split: Option<bool>) -> Result<()> {
        if space != SPACE {
            bail!(
                Unsupported,
                "Metaspace with {space:?} instead of {SPACE:?} is not known"
            );
        }
        let space = SPACE.to_string();
        let visible = Edit::Replace(Pattern::text(" ")?, space.as_str().into());
        self.edit(visible)?;
        let when = match scheme {
            PrependScheme::Never => None,
            PrependScheme::Always => Some(When::Absent),
            PrependScheme::First => Some(When::AbsentAtStart),
        };
        if let Some(when) = when {
            self.edit(Edit::Prepend(space.as_str().into(), when))?;
        }
        if split.unwrap_or(true) {
            self.push(Step::Cut(Cut {
                pattern: Pattern::text(&space)?,
                matches: Matches::Starts,
                invert: false,
            }))?;
        }
        Ok(())
    }
}

impl PostProcessor {
    /// The ids in front of a text and behind it.
    ///
    /// # Errors
    /// `Format` for a template with a token that it does not list.
    pub(super) fn around(&self) -> Result<(Vec<u32>, Vec<u32>)> {
        Ok(match self {
            Self::Sequence { processors } => {
                let (mut before, mut after) = (Vec::new(), Vec::new());
                for processor in &processors.0 {
                    let (front, back) = processor.around()?;
                    before.splice(..0, front);
                    after.extend(back);
                }
                (before, after)
            }
            Self::ByteLevel {} => Default::default(),
            Self::TemplateProcessing {
                single,
                special_tokens,
            } => {
                let (mut before, mut after) = (Vec::new(), Vec::new());
                let mut is_before = true;
                for part in &single.0 {
                    let Part::SpecialToken { id } = part else {
                        is_before = false;
                        continue;
                    };
                    let Some(ids) = special_tokens.get(id) else {
                        bail!(
                            Format,
                            "post_processor: {id:?} is not among its special tokens"
                        );
                    };
                    let side = if is_before { &mut before } else { &mut after };
                    side.extend(&ids.ids.0);
                }
                (before, after)
            }
            Self::BertProcessing { sep, cls } | Self::RobertaProcessing { sep, cls } => {
                (vec![cls.1], vec![sep.1])
            }
        })
    }
}

impl Looked {
    fn compile(&self) -> Result<Pattern> {
        match self {
            Self::String(text) => Pattern::text(text),
            Self::Regex(text) => Pattern::regex(text),
        }
    }
}

impl Behavior {
    fn matches(self) -> Matches {
        match self {
            Self::Removed => Matches::Removed,
            Self::Isolated => Matches::Words,
            Self::MergedWithPrevious => Matches::Ends,
            Self::MergedWithNext => Matches::Starts,
            Self::Contiguous => Matches::Contiguous,
        }
    }
}

/// A cut at what an expression matches.
fn cut(regex: &str, matches: Matches) -> Result<Cut> {
    Ok(Cut {
        pattern: Pattern::regex(regex)?,
        matches,
        invert: false,
    })
}

/// A text that a step writes.
fn written(text: &str) -> Result<Box<str>> {
    if text.len() > WRITTEN_BYTES_MAX {
        let bytes = text.len();
        bail!(
            TooLarge,
            "a text of {bytes} bytes for each match is over the limit of {WRITTEN_BYTES_MAX}"
        );
    }
    Ok(text.into())
}

/// The bytes of a text in base 64 (RFC 4648, with `+` and `/`).
fn base64(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => bail!(Format, "{:?} is not of base 64", char::from(c)),
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count).to_le_bytes()[0]);
        }
    }
    Ok(bytes)
}
