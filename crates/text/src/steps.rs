//! Normalization and pre-tokenization: an ordered list of steps that edit a text or split it into
//! words.

use super::charsmap::Charsmap;
use super::pattern::{Deadline, Pattern};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;
use tabla_core::error::{Result, bail};
use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfc_quick, is_nfkc_quick};
use unicode_segmentation::UnicodeSegmentation as _;

/// Maximum length of a normalized text in bytes, four times the maximum input length.
const NORMALIZED_BYTES_MAX: usize = 256 << 20;

/// A step, applied to each word of the previous steps.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// Replaces characters.
    Normalize(Normalization),
    /// Splits words.
    Split(Split),
}

/// A normalization of a word.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Normalization {
    /// A Unicode normalization form.
    Form(NormalizationForm),
    /// Lowercases each character independently.
    Lowercase,
    /// Replaces each match with a text.
    Replace(Pattern, Box<str>),
    /// Puts a space on both sides of each match.
    Surround(Pattern),
    /// Prepends a text to a non-empty word.
    Prepend(Box<str>, PrependCondition),
    /// Removes white space at the start.
    TrimStart,
    /// Removes white space at the end.
    TrimEnd,
    /// Applies a `SentencePiece` character map.
    Charsmap(Charsmap, CharsmapMatching),
}

/// A Unicode normalization form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NormalizationForm {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

impl NormalizationForm {
    /// The name in `tokenizer.json`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nfc => "NFC",
            Self::Nfd => "NFD",
            Self::Nfkc => "NFKC",
            Self::Nfkd => "NFKD",
        }
    }
}

/// When a text is prepended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PrependCondition {
    Always,
    /// Unless the word starts with it.
    IfAbsent,
    /// Unless the word starts with it, and only at the start of the input.
    IfAbsentAtStart,
}

/// How a character map is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CharsmapMatching {
    /// Replaces the longest mapped prefix, as in `SentencePiece`.
    LongestPrefix,
    /// Replaces each grapheme by the text of its shortest mapped prefix, as in Hugging Face's
    /// tokenizers. Graphemes of six or more bytes are mapped character by character.
    Graphemes,
}

/// Splits a word at the matches of a pattern.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Split {
    pub(super) pattern: Pattern,
    pub(super) behavior: SplitBehavior,
    /// Whether the text between the matches is treated as the matches.
    pub(super) invert: bool,
}

/// How a split treats the matches, as in Hugging Face's `Split`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SplitBehavior {
    /// Each match is a word.
    Isolated,
    Removed,
    /// Adjacent matches are one word.
    Contiguous,
    MergedWithPrevious,
    MergedWithNext,
}

impl Split {
    /// Creates a split at the matches of `pattern`, each of which is a word.
    pub(super) fn isolated(pattern: Pattern) -> Self {
        Self {
            pattern,
            behavior: SplitBehavior::Isolated,
            invert: false,
        }
    }
}

/// Position of a fragment in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// At the start of the input.
    Start,
    /// After a special token or a word.
    Later,
    /// Continues a previous text, so nothing is prepended.
    Continuation,
}

/// A text fragment and its words so far.
#[derive(Debug)]
struct Words<'t> {
    text: Cow<'t, str>,
    words: Vec<Range<usize>>,
}

/// Applies all steps to a text fragment and passes the resulting words to `on_word`.
///
/// # Errors
/// `TooLarge` for a text over the limits, `Tokenizer` after the deadline; errors of `on_word`.
pub(super) fn pre_tokenize(
    steps: &[Step],
    text: &str,
    position: Position,
    deadline: Deadline,
    mut on_word: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut words = Words {
        text: Cow::Borrowed(text),
        words: std::iter::once(0..text.len()).collect(),
    };
    for step in steps {
        match step {
            Step::Normalize(normalization) => words.normalize(normalization, position, deadline)?,
            Step::Split(split) => words.split(split, deadline)?,
        }
    }
    let text = &*words.text;
    words
        .words
        .iter()
        .try_for_each(|word| on_word(&text[word.clone()]))
}

/// Applies the steps of a normalizer, which do not split, to a text.
///
/// # Errors
/// As [`pre_tokenize`].
pub(super) fn normalize(steps: &[Step], text: &str, position: Position) -> Result<String> {
    let mut normalized = String::with_capacity(text.len());
    let deadline = Deadline::start(text.len());
    pre_tokenize(steps, text, position, deadline, |word| {
        normalized.push_str(word);
        Ok(())
    })?;
    Ok(normalized)
}

impl Words<'_> {
    fn split(&mut self, split: &Split, deadline: Deadline) -> Result<()> {
        let mut words = Vec::with_capacity(self.words.len() * 2);
        for word in &self.words {
            split.for_each_word(&self.text[word.clone()], deadline, |part| {
                words.push(word.start + part.start..word.start + part.end);
            })?;
        }
        self.words = words;
        Ok(())
    }

    fn normalize(
        &mut self,
        normalization: &Normalization,
        mut position: Position,
        deadline: Deadline,
    ) -> Result<()> {
        let mut text = String::with_capacity(self.text.len());
        let mut words = Vec::with_capacity(self.words.len());
        for word in &self.words {
            let start = text.len();
            text.push_str(&normalization.apply(&self.text[word.clone()], position, deadline)?);
            if position == Position::Start {
                position = Position::Later;
            }
            check_length(&text)?;
            if start < text.len() {
                words.push(start..text.len());
            }
        }
        (self.text, self.words) = (Cow::Owned(text), words);
        Ok(())
    }
}

impl Split {
    /// Calls `on_word` for each non-empty word of a text.
    fn for_each_word(
        &self,
        text: &str,
        deadline: Deadline,
        mut on_word: impl FnMut(Range<usize>),
    ) -> Result<()> {
        // Adjacent parts of one word are collected in `open`.
        let mut open = 0..0;
        let mut after_match = false;
        let mut part = |part: Range<usize>, is_match: bool| {
            if part.is_empty() {
                return;
            }
            let is_match = is_match != self.invert;
            let joins = match self.behavior {
                SplitBehavior::Isolated | SplitBehavior::Removed => false,
                SplitBehavior::Contiguous => is_match == after_match,
                SplitBehavior::MergedWithPrevious => is_match && !after_match,
                SplitBehavior::MergedWithNext => after_match && !is_match,
            };
            after_match = is_match;
            if joins {
                open.end = part.end;
                return;
            }
            let before = std::mem::replace(&mut open, part);
            if !before.is_empty() {
                on_word(before);
            }
            if is_match && self.behavior == SplitBehavior::Removed {
                open = 0..0;
            }
        };
        let mut done = 0;
        self.pattern.for_each_match(text, deadline, |range| {
            part(done..range.start, false);
            part(range.clone(), true);
            done = range.end;
            Ok(())
        })?;
        part(done..text.len(), false);
        if !open.is_empty() {
            on_word(open);
        }
        Ok(())
    }
}

impl Normalization {
    fn apply<'t>(
        &self,
        text: &'t str,
        position: Position,
        deadline: Deadline,
    ) -> Result<Cow<'t, str>> {
        Ok(match self {
            Self::Form(form) => form.apply(text),
            Self::Lowercase => text.chars().flat_map(char::to_lowercase).collect(),
            Self::Replace(pattern, with) => replace(pattern, text, deadline, |out, _| {
                out.push_str(with);
            })?,
            Self::Surround(pattern) => replace(pattern, text, deadline, |out, matched| {
                out.extend([" ", matched, " "]);
            })?,
            Self::Prepend(prefix, condition) => {
                let applies = match condition {
                    _ if position == Position::Continuation => false,
                    PrependCondition::Always => true,
                    PrependCondition::IfAbsent => !text.starts_with(&**prefix),
                    PrependCondition::IfAbsentAtStart => {
                        position == Position::Start && !text.starts_with(&**prefix)
                    }
                };
                if applies && !text.is_empty() {
                    Cow::Owned([prefix, text].concat())
                } else {
                    text.into()
                }
            }
            Self::TrimStart => text.trim_start().into(),
            Self::TrimEnd => text.trim_end().into(),
            Self::Charsmap(map, matching) => matching.apply(map, text)?.into(),
        })
    }
}

/// Replaces each match with the text that `write` writes.
fn replace<'t>(
    pattern: &Pattern,
    text: &'t str,
    deadline: Deadline,
    write: impl Fn(&mut String, &str),
) -> Result<Cow<'t, str>> {
    let (mut out, mut done) = (String::new(), 0);
    pattern.for_each_match(text, deadline, |range| {
        out.push_str(&text[done..range.start]);
        done = range.end;
        write(&mut out, &text[range]);
        check_length(&out)
    })?;
    if done == 0 && out.is_empty() {
        return Ok(text.into());
    }
    out.push_str(&text[done..]);
    Ok(out.into())
}

/// Checks the length limit of a normalized text.
fn check_length(text: &str) -> Result<()> {
    if text.len() > NORMALIZED_BYTES_MAX {
        bail!(
            TooLarge,
            "the normalized text exceeds the limit of {NORMALIZED_BYTES_MAX} bytes"
        );
    }
    Ok(())
}

impl NormalizationForm {
    fn apply(self, text: &str) -> Cow<'_, str> {
        let is_normalized = match self {
            _ if text.is_ascii() => true,
            Self::Nfc => is_nfc_quick(text.chars()) == IsNormalized::Yes,
            Self::Nfkc => is_nfkc_quick(text.chars()) == IsNormalized::Yes,
            Self::Nfd | Self::Nfkd => false,
        };
        match self {
            _ if is_normalized => text.into(),
            Self::Nfc => text.nfc().collect(),
            Self::Nfd => text.nfd().collect(),
            Self::Nfkc => text.nfkc().collect(),
            Self::Nfkd => text.nfkd().collect(),
        }
    }
}

impl CharsmapMatching {
    fn apply(self, map: &Charsmap, text: &str) -> Result<String> {
        let mut out = String::with_capacity(text.len());
        match self {
            Self::LongestPrefix => {
                let mut rest = text;
                while let Some(c) = rest.chars().next() {
                    let longest = map.prefixes(rest).last();
                    let longest = longest.filter(|(length, _)| rest.is_char_boundary(*length));
                    let (length, replacement) = longest.unwrap_or_else(|| {
                        let length = c.len_utf8();
                        (length, &rest[..length])
                    });
                    out.push_str(replacement);
                    check_length(&out)?;
                    rest = &rest[length..];
                }
            }
            Self::Graphemes => {
                for grapheme in text.graphemes(true) {
                    let first = |part| {
                        map.prefixes(part)
                            .next()
                            .map(|(_, replacement)| replacement)
                    };
                    if let Some(replacement) =
                        (grapheme.len() < 6).then(|| first(grapheme)).flatten()
                    {
                        out.push_str(replacement);
                    } else {
                        for c in grapheme.split_inclusive(|_| true) {
                            out.push_str(first(c).unwrap_or(c));
                        }
                    }
                    check_length(&out)?;
                }
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(steps: &[Step], text: &str) -> Vec<String> {
        let mut words = Vec::new();
        let deadline = Deadline::start(text.len());
        pre_tokenize(steps, text, Position::Start, deadline, |word| {
            words.push(word.to_owned());
            Ok(())
        })
        .unwrap();
        words
    }

    fn split(behavior: SplitBehavior) -> Split {
        Split {
            behavior,
            ..Split::isolated(Pattern::literal("-").unwrap())
        }
    }

    fn parts(split: Split) -> Vec<String> {
        words(&[Step::Split(split)], "the-final--countdown")
    }

    // The examples in Hugging Face's documentation of `Split`.
    #[test]
    fn split_behaviors_match_documented_examples() {
        use SplitBehavior::{Contiguous, Isolated, MergedWithNext, MergedWithPrevious, Removed};
        assert_eq!(parts(split(Removed)), ["the", "final", "countdown"]);
        assert_eq!(
            parts(split(Isolated)),
            ["the", "-", "final", "-", "-", "countdown"]
        );
        assert_eq!(
            parts(split(MergedWithPrevious)),
            ["the-", "final-", "-", "countdown"]
        );
        assert_eq!(
            parts(split(MergedWithNext)),
            ["the", "-final", "-", "-countdown"]
        );
        assert_eq!(
            parts(split(Contiguous)),
            ["the", "-", "final", "--", "countdown"]
        );
        let inverted = Split {
            invert: true,
            ..split(Removed)
        };
        assert_eq!(parts(inverted), ["-", "-", "-"]);
    }

    #[test]
    fn applies_steps_in_order() {
        let regex = |text| Pattern::regex(text).unwrap();
        let steps = [
            Step::Normalize(Normalization::Form(NormalizationForm::Nfd)),
            Step::Normalize(Normalization::Replace(regex(r"\p{Mn}"), "".into())),
            Step::Normalize(Normalization::Lowercase),
            Step::Split(Split {
                pattern: regex(r"\s"),
                behavior: SplitBehavior::Removed,
                invert: false,
            }),
            Step::Normalize(Normalization::Prepend(
                "▁".into(),
                PrependCondition::IfAbsentAtStart,
            )),
            Step::Split(Split::isolated(regex(r"\p{P}"))),
        ];
        assert_eq!(words(&steps, " É!  ▁Où?"), ["▁e", "!", "▁ou", "?"]);
        assert_eq!(words(&steps, ""), [""; 0]);
        assert_eq!(words(&steps, " \u{301} "), [""; 0]);
    }
}
