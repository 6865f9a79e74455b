//! Normalizers, pre-tokenizers and post-processors of `tokenizer.json`, converted to steps.

use super::parse::BoundedVec;
use crate::base64;
use crate::bert;
use crate::bpe::Alphabet;
use crate::charsmap::Charsmap;
use crate::pair::PairFormat;
use crate::pattern::Pattern;
use crate::pre::GPT_2;
use crate::spm::SPACE;
use crate::steps::{
    CharsmapMatching, Normalization, NormalizationForm, PrependCondition, Split, SplitBehavior,
    Step,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use tabla_core::error::{Context, Result, bail};

/// Maximum number of steps. Real files have at most about five.
pub(crate) const STEPS_MAX: usize = 64;
/// Maximum length of a replacement text in bytes, which limits how much a text can grow.
const REPLACEMENT_BYTES_MAX: usize = 256;
/// Characters that Hugging Face's `Nmt` removes, and those that it replaces with a space.
const NMT_REMOVED: &str = r"[\x01-\x08\x0b\x0e-\x1f\x7f\x{8f}\x{9f}]";
const NMT_SPACES: &str =
    r"[\t\n\x0c\r\x{1680}\x{200b}-\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}\x{fffd}]";

/// A normalizer of `tokenizer.json`.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(super) enum Normalizer {
    Sequence {
        normalizers: BoundedVec<Self, STEPS_MAX>,
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
        pattern: SearchPattern,
        content: String,
    },
    Precompiled {
        precompiled_charsmap: Option<String>,
    },
}

/// A pre-tokenizer of `tokenizer.json`.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(super) enum PreTokenizer {
    Sequence {
        pretokenizers: BoundedVec<Self, STEPS_MAX>,
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
        pattern: SearchPattern,
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

/// A post-processor of `tokenizer.json`, which adds special tokens.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(super) enum PostProcessor {
    Sequence {
        processors: BoundedVec<Self, STEPS_MAX>,
    },
    ByteLevel {},
    TemplateProcessing {
        single: BoundedVec<TemplatePart, STEPS_MAX>,
        pair: Option<BoundedVec<TemplatePart, STEPS_MAX>>,
        special_tokens: BTreeMap<String, SpecialTokenIds>,
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

/// A search pattern: a literal or a regex.
#[derive(Debug, Deserialize)]
pub(super) enum SearchPattern {
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

/// A part of a post-processor template.
#[derive(Debug, Deserialize)]
pub(super) enum TemplatePart {
    SpecialToken {
        id: String,
    },
    Sequence {
        #[serde(default)]
        type_id: u32,
    },
}

/// The ids of a special token in a post-processor template.
#[derive(Debug, Deserialize)]
pub(super) struct SpecialTokenIds {
    ids: BoundedVec<u32, STEPS_MAX>,
}

/// The steps, and the alphabet of the resulting words.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) steps: Vec<Step>,
    /// Number of the first steps that are the normalizer.
    pub(super) normalizer_steps: usize,
    pub(super) alphabet: Alphabet,
}

impl Pipeline {
    /// Converts a normalizer and a pre-tokenizer to steps.
    ///
    /// # Errors
    /// `Unsupported` for an unsupported regex or order of steps, `TooLarge` for a replacement text
    /// over the limit.
    pub(super) fn new(
        normalizer: Option<&Normalizer>,
        pre_tokenizer: Option<&PreTokenizer>,
    ) -> Result<Self> {
        let mut pipeline = Self {
            steps: Vec::new(),
            normalizer_steps: 0,
            alphabet: Alphabet::Characters,
        };
        if let Some(normalizer) = normalizer {
            pipeline.normalize(normalizer).context("normalizer")?;
            pipeline.normalizer_steps = pipeline.steps.len();
        }
        if let Some(pre_tokenizer) = pre_tokenizer {
            pipeline
                .pre_tokenize(pre_tokenizer)
                .context("pre_tokenizer")?;
        }
        Ok(pipeline)
    }

    /// Whether a step prepends a space.
    pub(super) fn adds_space_prefix(&self) -> bool {
        let prepends_space = |step: &Step| matches!(step, Step::Normalize(Normalization::Prepend(text, _)) if matches!(&**text, " " | "▁"));
        self.steps.iter().any(prepends_space)
    }

    fn push(&mut self, step: Step) -> Result<()> {
        if self.steps.len() >= STEPS_MAX {
            bail!(TooLarge, "more than {STEPS_MAX} steps");
        }
        self.steps.push(step);
        Ok(())
    }

    fn push_normalization(&mut self, normalization: Normalization) -> Result<()> {
        self.push(Step::Normalize(normalization))
    }

    #[expect(clippy::too_many_lines, reason = "one arm per normalizer")]
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
                    steps.push(bert::separate_ideographs()?);
                }
                if strip_accents.unwrap_or(lowercase) {
                    steps.extend(bert::strip_accents()?);
                }
                if lowercase {
                    steps.push(Step::Normalize(Normalization::Lowercase));
                }
                steps.into_iter().try_for_each(|step| self.push(step))
            }
            Normalizer::Nfc => self.push_normalization(Normalization::Form(NormalizationForm::Nfc)),
            Normalizer::Nfd => self.push_normalization(Normalization::Form(NormalizationForm::Nfd)),
            Normalizer::Nfkc => {
                self.push_normalization(Normalization::Form(NormalizationForm::Nfkc))
            }
            Normalizer::Nfkd => {
                self.push_normalization(Normalization::Form(NormalizationForm::Nfkd))
            }
            Normalizer::Nmt => {
                self.push_normalization(Normalization::Replace(
                    Pattern::regex(NMT_REMOVED)?,
                    "".into(),
                ))?;
                self.push_normalization(Normalization::Replace(
                    Pattern::regex(NMT_SPACES)?,
                    " ".into(),
                ))
            }
            Normalizer::Lowercase => self.push_normalization(Normalization::Lowercase),
            Normalizer::StripAccents => self
                .push_normalization(Normalization::Replace(Pattern::regex(r"\p{M}")?, "".into())),
            Normalizer::Strip {
                strip_left,
                strip_right,
            } => {
                if strip_left.unwrap_or(true) {
                    self.push_normalization(Normalization::TrimStart)?;
                }
                if strip_right.unwrap_or(true) {
                    self.push_normalization(Normalization::TrimEnd)?;
                }
                Ok(())
            }
            Normalizer::Prepend { prepend } => self.push_normalization(Normalization::Prepend(
                replacement(prepend)?,
                PrependCondition::Always,
            )),
            Normalizer::Replace { pattern, content } => self.push_normalization(
                Normalization::Replace(pattern.compile()?, replacement(content)?),
            ),
            Normalizer::Precompiled {
                precompiled_charsmap,
            } => {
                let Some(text) = precompiled_charsmap else {
                    return Ok(());
                };
                let map = Charsmap::read(&base64::decode(text)?)?;
                self.push_normalization(Normalization::Charsmap(map, CharsmapMatching::Graphemes))
            }
        }
    }

    fn pre_tokenize(&mut self, pre_tokenizer: &PreTokenizer) -> Result<()> {
        if self.alphabet == Alphabet::Bytes {
            bail!(Unsupported, "unsupported step after ByteLevel");
        }
        let split = match pre_tokenizer {
            PreTokenizer::Sequence { pretokenizers } => {
                return pretokenizers
                    .0
                    .iter()
                    .try_for_each(|p| self.pre_tokenize(p));
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
            } => Split {
                pattern: pattern.compile()?,
                behavior: behavior.convert(),
                invert: invert.unwrap_or(false),
            },
            PreTokenizer::Punctuation { behavior } => {
                let behavior = behavior.map_or(SplitBehavior::Isolated, Behavior::convert);
                split_at(bert::PUNCTUATION, behavior)?
            }
            PreTokenizer::Digits { individual_digits } => {
                let behavior = match individual_digits {
                    Some(true) => SplitBehavior::Isolated,
                    _ => SplitBehavior::Contiguous,
                };
                split_at(r"\p{N}", behavior)?
            }
            PreTokenizer::CharDelimiterSplit { delimiter } => Split {
                pattern: Pattern::literal(delimiter.encode_utf8(&mut [0; 4]))?,
                behavior: SplitBehavior::Removed,
                invert: false,
            },
            PreTokenizer::Bert => {
                return bert::words()?
                    .into_iter()
                    .try_for_each(|step| self.push(step));
            }
            PreTokenizer::Whitespace => Split {
                invert: true,
                ..split_at(r"\w+|[^\w\s]+", SplitBehavior::Removed)?
            },
            PreTokenizer::WhitespaceSplit => split_at(r"\s", SplitBehavior::Removed)?,
        };
        self.push(Step::Split(split))
    }

    /// Splits as GPT-2 does, and switches to the byte alphabet.
    fn byte_level(&mut self, prefix: Option<bool>, regex: Option<bool>) -> Result<()> {
        if prefix.unwrap_or(true) {
            self.push_normalization(Normalization::Prepend(
                " ".into(),
                PrependCondition::IfAbsent,
            ))?;
        }
        if regex.unwrap_or(true) {
            self.push(Step::Split(Split::isolated(Pattern::regex(GPT_2)?)))?;
        }
        self.alphabet = Alphabet::Bytes;
        Ok(())
    }

    /// Replaces spaces with `▁`, prepends one, and splits before each.
    fn metaspace(&mut self, space: char, scheme: PrependScheme, split: Option<bool>) -> Result<()> {
        if space != SPACE {
            bail!(
                Unsupported,
                "Metaspace: unsupported replacement {space:?}, expected {SPACE:?}"
            );
        }
        let space = SPACE.to_string();
        let escape = Normalization::Replace(Pattern::literal(" ")?, space.as_str().into());
        self.push_normalization(escape)?;
        let condition = match scheme {
            PrependScheme::Never => None,
            PrependScheme::Always => Some(PrependCondition::IfAbsent),
            PrependScheme::First => Some(PrependCondition::IfAbsentAtStart),
        };
        if let Some(condition) = condition {
            self.push_normalization(Normalization::Prepend(space.as_str().into(), condition))?;
        }
        if split.unwrap_or(true) {
            self.push(Step::Split(Split {
                pattern: Pattern::literal(&space)?,
                behavior: SplitBehavior::MergedWithNext,
                invert: false,
            }))?;
        }
        Ok(())
    }
}

impl Normalizer {
    /// Returns the bytes of the first character map.
    ///
    /// # Errors
    /// `Format` if they are not base64.
    pub(super) fn charsmap(&self) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Sequence { normalizers } => {
                let mut maps = normalizers.0.iter().map(Self::charsmap);
                maps.find_map(Result::transpose).transpose()
            }
            Self::Precompiled {
                precompiled_charsmap: Some(text),
            } => base64::decode(text).map(Some),
            _ => Ok(None),
        }
    }
}

impl PostProcessor {
    /// Returns how two texts are joined; `None` if it does not say.
    ///
    /// # Errors
    /// `Format` for a template with a token that it does not list.
    pub(super) fn pair(&self) -> Result<Option<PairFormat>> {
        let (ids, second_type) = match self {
            Self::Sequence { processors } => {
                let mut formats = processors.0.iter().map(Self::pair);
                return formats.find_map(Result::transpose).transpose();
            }
            Self::TemplateProcessing {
                pair: Some(pair),
                special_tokens,
                ..
            } => ids_around_texts(&pair.0, special_tokens)?,
            Self::BertProcessing { sep, cls } => ([vec![cls.1], vec![sep.1], vec![sep.1]], 1),
            Self::RobertaProcessing { sep, cls } => ([vec![cls.1], vec![sep.1; 2], vec![sep.1]], 0),
            Self::ByteLevel {} | Self::TemplateProcessing { .. } => return Ok(None),
        };
        let [before, between, after] = ids;
        Ok(Some(PairFormat {
            before,
            between,
            after,
            second_type,
        }))
    }

    /// Returns the ids that are added before and after a text.
    ///
    /// # Errors
    /// `Format` for a template with a token that it does not list.
    pub(super) fn added_ids(&self) -> Result<(Vec<u32>, Vec<u32>)> {
        Ok(match self {
            Self::Sequence { processors } => {
                let (mut before, mut after) = (Vec::new(), Vec::new());
                for processor in &processors.0 {
                    let (outer_before, outer_after) = processor.added_ids()?;
                    before.splice(..0, outer_before);
                    after.extend(outer_after);
                }
                (before, after)
            }
            Self::ByteLevel {} => Default::default(),
            Self::TemplateProcessing {
                single,
                special_tokens,
                ..
            } => {
                let [before, after] = ids_around_texts(&single.0, special_tokens)?.0;
                (before, after)
            }
            Self::BertProcessing { sep, cls } | Self::RobertaProcessing { sep, cls } => {
                (vec![cls.1], vec![sep.1])
            }
        })
    }
}

/// Returns the ids before, between and after the texts of a template with `N - 1` texts, and the token
/// type of the last one. Further texts count as the last one.
fn ids_around_texts<const N: usize>(
    template: &[TemplatePart],
    special_tokens: &BTreeMap<String, SpecialTokenIds>,
) -> Result<([Vec<u32>; N], u32)> {
    let mut around = [const { Vec::new() }; N];
    let (mut at, mut token_type) = (0, 0);
    for part in template {
        match part {
            TemplatePart::Sequence { type_id } => {
                at = (at + 1).min(N - 1);
                token_type = *type_id;
            }
            TemplatePart::SpecialToken { id } => match special_tokens.get(id) {
                Some(ids) => around[at].extend(&ids.ids.0),
                None => bail!(
                    Format,
                    "post_processor: {id:?} is missing in special_tokens"
                ),
            },
        }
    }
    Ok((around, token_type))
}

impl SearchPattern {
    fn compile(&self) -> Result<Pattern> {
        match self {
            Self::String(text) => Pattern::literal(text),
            Self::Regex(text) => Pattern::regex(text),
        }
    }
}

impl Behavior {
    fn convert(self) -> SplitBehavior {
        match self {
            Self::Removed => SplitBehavior::Removed,
            Self::Isolated => SplitBehavior::Isolated,
            Self::MergedWithPrevious => SplitBehavior::MergedWithPrevious,
            Self::MergedWithNext => SplitBehavior::MergedWithNext,
            Self::Contiguous => SplitBehavior::Contiguous,
        }
    }
}

/// Creates a split at the matches of a regex.
fn split_at(regex: &str, behavior: SplitBehavior) -> Result<Split> {
    Ok(Split {
        pattern: Pattern::regex(regex)?,
        behavior,
        invert: false,
    })
}

/// Checks the length of a replacement text.
fn replacement(text: &str) -> Result<Box<str>> {
    if text.len() > REPLACEMENT_BYTES_MAX {
        let bytes = text.len();
        bail!(
            TooLarge,
            "a replacement text of {bytes} bytes exceeds the limit of {REPLACEMENT_BYTES_MAX}"
        );
    }
    Ok(text.into())
}
