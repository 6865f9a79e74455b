//! Search patterns: a literal, or a regular expression from a vocabulary.
//!
//! The regex engine stops after a million backtracking steps or stack entries. That is an error
//! here, because ending the search would silently produce different tokens. The engine does not
//! limit the total time of many slow searches, so a deadline does.

use fancy_regex::{Regex, RegexBuilder};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::ops::Range;
use std::time::{Duration, Instant};
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// Maximum regex length in bytes. The longest in use has 1,400.
const REGEX_BYTES_MAX: usize = 8 << 10;
/// Maximum number of instructions of a compiled regex, in which repetitions are unrolled.
const REGEX_INSTRUCTIONS_MAX: usize = 64 << 10;
/// Time limit for a text, plus the time per byte. A normal text takes a hundredth of it.
const TIME: Duration = Duration::from_secs(10);
const TIME_PER_BYTE: Duration = Duration::from_micros(2);
/// Number of matches between two checks of the deadline.
const CHECK_INTERVAL: usize = 64;

/// A literal or a regular expression.
#[derive(Debug)]
pub(super) enum Pattern {
    /// A non-empty literal.
    Literal(Box<str>),
    /// A regular expression.
    Regex(Box<Regex>),
}

/// The text of a pattern in a file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PatternText<'a> {
    Literal(Cow<'a, str>),
    Regex(Cow<'a, str>),
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = match self {
            Self::Literal(text) => PatternText::Literal(Cow::Borrowed(text)),
            Self::Regex(regex) => PatternText::Regex(Cow::Borrowed(regex.as_str())),
        };
        text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pattern = match PatternText::deserialize(deserializer)? {
            PatternText::Literal(text) => Self::literal(&text),
            PatternText::Regex(text) => Self::regex(&text),
        };
        pattern.map_err(D::Error::custom)
    }
}

/// Time limit for encoding one text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// Starts the time limit for a text of `bytes` bytes, at most 64 MiB.
    pub(super) fn start(bytes: usize) -> Self {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Self(Instant::now() + TIME + TIME_PER_BYTE * bytes)
    }

    fn check(self) -> Result<()> {
        if Instant::now() > self.0 {
            bail!(Tokenizer, "pre-tokenization exceeds its time limit");
        }
        Ok(())
    }
}

impl Pattern {
    /// Compiles a regex.
    ///
    /// # Errors
    /// `Unsupported` for invalid syntax or a regex over the limits.
    pub(super) fn regex(text: &str) -> Result<Self> {
        if text.len() > REGEX_BYTES_MAX {
            let bytes = text.len();
            bail!(
                Unsupported,
                "a regex of {bytes} bytes exceeds the limit of {REGEX_BYTES_MAX}"
            );
        }
        let regex = RegexBuilder::new(text)
            .max_prog_size(REGEX_INSTRUCTIONS_MAX)
            .build()
            .map_err(|e| Error::new(ErrorKind::Unsupported, format!("{text:?}: {e}")))?;
        Ok(Self::Regex(Box::new(regex)))
    }

    /// Creates a literal pattern.
    ///
    /// # Errors
    /// `Unsupported` for an empty literal, which would match everywhere.
    pub(super) fn literal(text: &str) -> Result<Self> {
        if text.is_empty() {
            bail!(Unsupported, "a search pattern is empty");
        }
        Ok(Self::Literal(text.into()))
    }

    /// Calls `on_match` for each match, from left to right.
    ///
    /// # Errors
    /// `TooLarge` if the engine reaches its limits, `Tokenizer` after the deadline; errors of
    /// `on_match`.
    pub(super) fn for_each_match(
        &self,
        text: &str,
        deadline: Deadline,
        mut on_match: impl FnMut(Range<usize>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Literal(literal) => text
                .match_indices(&**literal)
                .try_for_each(|(at, literal)| on_match(at..at + literal.len())),
            Self::Regex(regex) => {
                for (n, matched) in (1..).zip(regex.find_iter(text)) {
                    let matched = matched.map_err(|e| {
                        let what = "a part of the text exceeds the limits of the regex engine";
                        Error::new(ErrorKind::TooLarge, format!("{what}: {e}"))
                    })?;
                    on_match(matched.range())?;
                    if n % CHECK_INTERVAL == 0 {
                        deadline.check()?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// A regular expression that must match a whole text, as in Python's `re.fullmatch`.
#[derive(Debug)]
pub struct FullMatch(Pattern);

impl FullMatch {
    /// Compiles a regular expression.
    ///
    /// # Errors
    /// `Unsupported` for invalid syntax or a regex over the limits.
    pub fn new(regex: &str) -> Result<Self> {
        // Syntax errors must not depend on the added anchors.
        Pattern::regex(regex)?;
        Pattern::regex(&format!("^(?:{regex})$")).map(Self)
    }

    /// Returns whether the expression matches the whole text.
    ///
    /// # Errors
    /// `TooLarge` if the engine reaches its limits.
    pub fn matches(&self, text: &str) -> Result<bool> {
        let mut found = false;
        let deadline = Deadline::start(text.len());
        self.0.for_each_match(text, deadline, |_| {
            found = true;
            Ok(())
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pattern: &Pattern, text: &str) -> Result<Vec<Range<usize>>> {
        let mut all = Vec::new();
        pattern.for_each_match(text, Deadline::start(text.len()), |range| {
            all.push(range);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn finds_literals_and_regexes() {
        assert_eq!(
            all(&Pattern::literal("ab").unwrap(), "abcab").unwrap(),
            [0..2, 3..5]
        );
        let regex = Pattern::regex(r"\s+(?!\S)|\s+|\S+").unwrap();
        assert_eq!(all(&regex, "a  b").unwrap(), [0..1, 1..2, 2..3, 3..4]);
        assert!(Pattern::literal("").is_err());
    }

    #[test]
    fn full_matches_are_anchored() {
        let check = |regex: &str, text: &str| FullMatch::new(regex).unwrap().matches(text).unwrap();
        assert!(check("a|ab", "ab"));
        assert!(check(r"layers\.\d+\.q", "layers.12.q"));
        assert!(!check(r"layers\.\d+\.q", "layers.12.q_proj"));
        assert!(!check("b", "ab"));
        assert!(FullMatch::new("a)(b").is_err());
    }

    #[test]
    fn reports_limits_of_regex_engine() {
        let regex = Pattern::regex(r"\s+(?!\S)|\s+|\S+").unwrap();
        let run = all(&regex, &(" ".repeat(900_000) + "x")).unwrap();
        assert_eq!(run, [0..899_999, 899_999..900_000, 900_000..900_001]);
        let error = all(&regex, &(" ".repeat(1_100_000) + "x")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let regex = Pattern::regex("(?:x+(?!z))+[0-9]").unwrap();
        let error = all(&regex, &"x".repeat(40)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn hostile_regexes_are_rejected_or_linear() {
        let started = Instant::now();
        let regex = Pattern::regex("(a+)+$").unwrap();
        assert!(
            all(&regex, &("a".repeat(100_000) + "b"))
                .unwrap()
                .is_empty()
        );
        for hostile in [
            "(((((?=a){1000}){1000}){1000}){1000}){1000}",
            r"((\w{1000}){1000}){1000}",
            "(",
            &"(".repeat(8000),
            &"a".repeat(10_000),
        ] {
            let error = Pattern::regex(hostile).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{:?}",
            started.elapsed()
        );
    }
}
