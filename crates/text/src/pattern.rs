//! What is looked for in a text: a literal, or an expression that came with a vocabulary.
//!
//! The expression engine gives up after a million steps back or a million places to go back to. That
//! is an error here and not an end of the search: the rest of the text would become other tokens
//! without a word. What it does not bound is many slow searches, which the clock does.

use fancy_regex::{Regex, RegexBuilder};
use std::ops::Range;
use std::time::{Duration, Instant};
use tabla_core::error::{Error, ErrorKind, Result, bail};

/// The longest expression; the longest in use has 1,400 bytes.
const REGEX_BYTES_MAX: usize = 8 << 10;
/// The most instructions that an expression becomes: repetitions are unrolled.
const REGEX_INSTRUCTIONS_MAX: usize = 64 << 10;
/// The time for one text, and for each of its bytes; a hundredth of it is usual.
const TIME: Duration = Duration::from_secs(10);
const TIME_PER_BYTE: Duration = Duration::from_micros(2);
/// The clock is read after so many matches.
const MATCHES_BETWEEN: usize = 64;

/// A literal or an expression.
#[derive(Debug)]
pub(super) enum Pattern {
    /// These characters, of which there is one at least.
    Text(Box<str>),
    /// What this expression matches.
    Regex(Box<Regex>),
}

/// When the work on one text has to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    /// Starts for a text of so many bytes, of which there are 64 MiB at most.
    pub(super) fn start(bytes: usize) -> Self {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Self(Instant::now() + TIME + TIME_PER_BYTE * bytes)
    }

    fn check(self) -> Result<()> {
        if Instant::now() > self.0 {
            bail!(Tokenizer, "the expressions take too long for this text");
        }
        Ok(())
    }
}

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// `Unsupported` for one that the engine does not know or that is over the limits.
    pub(super) fn regex(text: &str) -> Result<Self> {
        if text.len() > REGEX_BYTES_MAX {
            let bytes = text.len();
            bail!(
                Unsupported,
                "an expression of {bytes} bytes is over the limit of {REGEX_BYTES_MAX}"
            );
        }
        let regex = RegexBuilder::new(text)
            .max_prog_size(REGEX_INSTRUCTIONS_MAX)
            .build()
            .map_err(|e| Error::new(ErrorKind::Unsupported, format!("{text:?}: {e}")))?;
        Ok(Self::Regex(Box::new(regex)))
    }

    /// A literal.
    ///
    /// # Errors
    /// `Unsupported` for an empty one: it would be everywhere.
    pub(super) fn text(text: &str) -> Result<Self> {
        if text.is_empty() {
            bail!(Unsupported, "a pattern is empty");
        }
        Ok(Self::Text(text.into()))
    }

    /// Calls `found` for each match, from left to right.
    ///
    /// # Errors
    /// `TooLarge` where the engine gives up, `Tokenizer` where it takes too long, what `found` says.
    pub(super) fn each(
        &self,
        text: &str,
        clock: Clock,
        mut found: impl FnMut(Range<usize>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Text(literal) => text
                .match_indices(&**literal)
                .try_for_each(|(at, literal)| found(at..at + literal.len())),
            Self::Regex(regex) => {
                for (n, matched) in (1..).zip(regex.find_iter(text)) {
                    let matched = matched.map_err(|e| {
                        let what = "the text has a stretch that is too long for an expression";
                        Error::new(ErrorKind::TooLarge, format!("{what}: {e}"))
                    })?;
                    found(matched.range())?;
                    if n % MATCHES_BETWEEN == 0 {
                        clock.check()?;
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pattern: &Pattern, text: &str) -> Result<Vec<Range<usize>>> {
        let mut all = Vec::new();
        pattern.each(text, Clock::start(text.len()), |range| {
            all.push(range);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn literals_and_expressions() {
        assert_eq!(
            all(&Pattern::text("ab").unwrap(), "abcab").unwrap(),
            [0..2, 3..5]
        );
        let regex = Pattern::regex(r"\s+(?!\S)|\s+|\S+").unwrap();
        assert_eq!(all(&regex, "a  b").unwrap(), [0..1, 1..2, 2..3, 3..4]);
        assert!(Pattern::text("").is_err());
    }

    #[test]
    fn an_engine_that_gives_up_is_an_error() {
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
    fn hostile_expressions_are_refused_or_linear() {
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
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
    }
}
