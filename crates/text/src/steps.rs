//! What a text goes through before the model: edits of its characters and cuts into words, in order.

use super::charsmap::Charsmap;
use super::pattern::{Clock, Pattern};
use std::borrow::Cow;
use std::ops::Range;
use tabla_core::error::{Result, bail};
use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfc_quick, is_nfkc_quick};
use unicode_segmentation::UnicodeSegmentation as _;

/// The longest text that edits may lead to; four times the longest that is encoded.
const EDITED_BYTES_MAX: usize = 256 << 20;

/// One step, for each word that there is so far.
#[derive(Debug)]
pub(super) enum Step {
    /// Characters become other characters.
    Edit(Edit),
    /// A word becomes words.
    Cut(Cut),
}

/// How characters become others.
#[derive(Debug)]
pub(super) enum Edit {
    /// A normalization form of Unicode.
    Form(Form),
    /// Each character on its own becomes small.
    Lowercase,
    /// Each match becomes this text.
    Replace(Pattern, Box<str>),
    /// A space goes on both sides of each match.
    Surround(Pattern),
    /// This text goes in front, if there is anything.
    Prepend(Box<str>, When),
    /// White space at the start goes away.
    TrimStart,
    /// White space at the end goes away.
    TrimEnd,
    /// A map of `SentencePiece`, and how it is read.
    Charsmap(Charsmap, Reading),
}

/// The normalization forms of Unicode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

/// When a text goes in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// Unless the word begins with it.
    Absent,
    /// The same, and only where the whole text begins.
    AbsentAtStart,
}

/// How a character map is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The longest beginning that is in the map, as `SentencePiece` does it.
    Longest,
    /// The shortest beginning of what a reader sees as one character stands for all of it, as
    /// Hugging Face's fast tokenizers do it; those of six bytes or more are taken apart.
    Graphemes,
}

/// How a text is cut at the matches of a pattern.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) pattern: Pattern,
    pub(super) matches: Matches,
    /// Whether what is between the matches counts as the matches.
    pub(super) invert: bool,
}

/// What becomes of the matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matches {
    Words,
    Removed,
    /// Neighbouring matches are one word.
    Contiguous,
    /// The end of the word before.
    Ends,
    /// The start of the word behind.
    Starts,
}

impl Cut {
    /// Matches are words, and so is what is between them.
    pub(super) fn isolated(pattern: Pattern) -> Self {
        Self {
            pattern,
            matches: Matches::Words,
            invert: false,
        }
    }
}

/// Where a stretch of text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At the start of the whole text.
    Start,
    /// Behind a special token or a word.
    Later,
    /// In the middle of a text: nothing goes in front of it.
    Within,
}

/// A stretch of text between special tokens, on its way to words.
#[derive(Debug)]
struct Words<'t> {
    text: Cow<'t, str>,
    words: Vec<Range<usize>>,
}

/// Takes a stretch of text through all steps, and gives the words to `done`.
///
/// # Errors
/// `TooLarge` for a text or a stretch of it over the limits, `Tokenizer` for one that takes too long.
pub(super) fn walk(
    steps: &[Step],
    text: &str,
    place: Place,
    clock: Clock,
    mut done: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut words = Words {
        text: Cow::Borrowed(text),
        words: std::iter::once(0..text.len()).collect(),
    };
    for step in steps {
        match step {
            Step::Edit(edit) => words.edit(edit, place, clock)?,
            Step::Cut(cut) => words.cut(cut, clock)?,
        }
    }
    let text = &*words.text;
    words
        .words
        .iter()
        .try_for_each(|word| done(&text[word.clone()]))
}

impl Words<'_> {
    fn cut(&mut self, cut: &Cut, clock: Clock) -> Result<()> {
        let mut words = Vec::with_capacity(self.words.len() * 2);
        for word in &self.words {
            cut.words(&self.text[word.clone()], clock, |part| {
                words.push(word.start + part.start..word.start + part.end);
            })?;
        }
        self.words = words;
        Ok(())
    }

    fn edit(&mut self, edit: &Edit, mut place: Place, clock: Clock) -> Result<()> {
        let mut text = String::with_capacity(self.text.len());
        let mut words = Vec::with_capacity(self.words.len());
        for word in &self.words {
            let start = text.len();
            text.push_str(&edit.apply(&self.text[word.clone()], place, clock)?);
            if place == Place::Start {
                place = Place::Later;
            }
            within(&text)?;
            if start < text.len() {
                words.push(start..text.len());
            }
        }
        (self.text, self.words) = (Cow::Owned(text), words);
        Ok(())
    }
}

impl Cut {
    /// Calls `word` for each word of a text that is not empty.
    fn words(&self, text: &str, clock: Clock, mut word: impl FnMut(Range<usize>)) -> Result<()> {
        // Neighbours that belong together are collected until one begins anew.
        let mut open = 0..0;
        let mut after_match = false;
        let mut part = |part: Range<usize>, is_match: bool| {
            if part.is_empty() {
                return;
            }
            let is_match = is_match != self.invert;
            let joins = match self.matches {
                Matches::Words | Matches::Removed => false,
                Matches::Contiguous => is_match == after_match,
                Matches::Ends => is_match && !after_match,
                Matches::Starts => after_match && !is_match,
            };
            after_match = is_match;
            if joins {
                open.end = part.end;
                return;
            }
            let before = std::mem::replace(&mut open, part);
            if !before.is_empty() {
                word(before);
            }
            if is_match && self.matches == Matches::Removed {
                open = 0..0;
            }
        };
        let mut done = 0;
        self.pattern.each(text, clock, |found| {
            part(done..found.start, false);
            part(found.clone(), true);
            done = found.end;
            Ok(())
        })?;
        part(done..text.len(), false);
        if !open.is_empty() {
            word(open);
        }
        Ok(())
    }
}

impl Edit {
    fn apply<'t>(&self, text: &'t str, place: Place, clock: Clock) -> Result<Cow<'t, str>> {
        Ok(match self {
            Self::Form(form) => form.of(text),
            Self::Lowercase => text.chars().flat_map(char::to_lowercase).collect(),
            Self::Replace(pattern, with) => replace(pattern, text, clock, |out, _| {
                out.push_str(with);
            })?,
            Self::Surround(pattern) => replace(pattern, text, clock, |out, found| {
                out.extend([" ", found, " "]);
            })?,
            Self::Prepend(front, when) => {
                let wanted = match when {
                    _ if place == Place::Within => false,
                    When::Always => true,
                    When::Absent => !text.starts_with(&**front),
                    When::AbsentAtStart => place == Place::Start && !text.starts_with(&**front),
                };
                if wanted && !text.is_empty() {
                    Cow::Owned([front, text].concat())
                } else {
                    text.into()
                }
            }
            Self::TrimStart => text.trim_start().into(),
            Self::TrimEnd => text.trim_end().into(),
            Self::Charsmap(map, reading) => reading.of(map, text)?.into(),
        })
    }
}

/// Writes something else for each match.
fn replace<'t>(
    pattern: &Pattern,
    text: &'t str,
    clock: Clock,
    write: impl Fn(&mut String, &str),
) -> Result<Cow<'t, str>> {
    let (mut out, mut done) = (String::new(), 0);
    pattern.each(text, clock, |found| {
        out.push_str(&text[done..found.start]);
        done = found.end;
        write(&mut out, &text[found]);
        within(&out)
    })?;
    if done == 0 && out.is_empty() {
        return Ok(text.into());
    }
    out.push_str(&text[done..]);
    Ok(out.into())
}

/// Holds a text against the limit.
fn within(text: &str) -> Result<()> {
    if text.len() > EDITED_BYTES_MAX {
        bail!(
            TooLarge,
            "the text grows over the limit of {EDITED_BYTES_MAX} bytes"
        );
    }
    Ok(())
}

impl Form {
    fn of(self, text: &str) -> Cow<'_, str> {
        let is_same = match self {
            _ if text.is_ascii() => true,
            Self::Nfc => is_nfc_quick(text.chars()) == IsNormalized::Yes,
            Self::Nfkc => is_nfkc_quick(text.chars()) == IsNormalized::Yes,
            Self::Nfd | Self::Nfkd => false,
        };
        match self {
            _ if is_same => text.into(),
            Self::Nfc => text.nfc().collect(),
            Self::Nfd => text.nfd().collect(),
            Self::Nfkc => text.nfkc().collect(),
            Self::Nfkd => text.nfkd().collect(),
        }
    }
}

impl Reading {
    fn of(self, map: &Charsmap, text: &str) -> Result<String> {
        let mut out = String::with_capacity(text.len());
        match self {
            Self::Longest => {
                let mut rest = text;
                while let Some(c) = rest.chars().next() {
                    let found = map.prefixes(rest).last();
                    let found = found.filter(|(length, _)| rest.is_char_boundary(*length));
                    let (length, other) = found.unwrap_or_else(|| {
                        let length = c.len_utf8();
                        (length, &rest[..length])
                    });
                    out.push_str(other);
                    within(&out)?;
                    rest = &rest[length..];
                }
            }
            Self::Graphemes => {
                for grapheme in text.graphemes(true) {
                    let first = |part| map.prefixes(part).next().map(|(_, other)| other);
                    if let Some(other) = (grapheme.len() < 6).then(|| first(grapheme)).flatten() {
                        out.push_str(other);
                    } else {
                        for c in grapheme.split_inclusive(|_| true) {
                            out.push_str(first(c).unwrap_or(c));
                        }
                    }
                    within(&out)?;
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
        let clock = Clock::start(text.len());
        walk(steps, text, Place::Start, clock, |word| {
            words.push(word.to_owned());
            Ok(())
        })
        .unwrap();
        words
    }

    fn cut(matches: Matches) -> Cut {
        Cut {
            matches,
            ..Cut::isolated(Pattern::text("-").unwrap())
        }
    }

    fn parts(cut: Cut) -> Vec<String> {
        words(&[Step::Cut(cut)], "the-final--countdown")
    }

    // The examples of Hugging Face's documentation of `Split`.
    #[test]
    fn matches_become_what_is_asked() {
        use Matches::{Contiguous, Ends, Removed, Starts, Words};
        assert_eq!(parts(cut(Removed)), ["the", "final", "countdown"]);
        assert_eq!(
            parts(cut(Words)),
            ["the", "-", "final", "-", "-", "countdown"]
        );
        assert_eq!(parts(cut(Ends)), ["the-", "final-", "-", "countdown"]);
        assert_eq!(parts(cut(Starts)), ["the", "-final", "-", "-countdown"]);
        assert_eq!(
            parts(cut(Contiguous)),
            ["the", "-", "final", "--", "countdown"]
        );
        let inverted = Cut {
            invert: true,
            ..cut(Removed)
        };
        assert_eq!(parts(inverted), ["-", "-", "-"]);
    }

    #[test]
    fn edits_and_cuts_follow_each_other() {
        let regex = |text| Pattern::regex(text).unwrap();
        let steps = [
            Step::Edit(Edit::Form(Form::Nfd)),
            Step::Edit(Edit::Replace(regex(r"\p{Mn}"), "".into())),
            Step::Edit(Edit::Lowercase),
            Step::Cut(Cut {
                pattern: regex(r"\s"),
                matches: Matches::Removed,
                invert: false,
            }),
            Step::Edit(Edit::Prepend("▁".into(), When::AbsentAtStart)),
            Step::Cut(Cut::isolated(regex(r"\p{P}"))),
        ];
        assert_eq!(words(&steps, " É!  ▁Où?"), ["▁e", "!", "▁ou", "?"]);
        assert_eq!(words(&steps, ""), [""; 0]);
        assert_eq!(words(&steps, " \u{301} "), [""; 0]);
    }
}
