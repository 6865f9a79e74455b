//! The error type of all crates: a kind for the caller to act on, a message and an optional cause.

use std::borrow::Cow;
use std::fmt;

/// Maximum number of characters of a quoted text or a word in a message.
const QUOTED_CHARS_MAX: usize = 200;

/// Maximum number of characters of a message.
const MESSAGE_CHARS_MAX: usize = 1000;

/// Kind of an error. The numbers are part of the C ABI: never change or reuse one.
#[repr(i32)]
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument is out of its range, or a pointer is NULL.
    Argument = 1,
    /// An operating system error, such as a missing file or a read error.
    Io = 2,
    /// The file is damaged or violates its format.
    Format = 3,
    /// The file is valid but uses a feature that this build does not support.
    Unsupported = 4,
    /// A size exceeds a limit of the model, the device or this build.
    TooLarge = 5,
    /// The tokenizer cannot be built, or cannot encode this text.
    Tokenizer = 6,
    /// A grammar or a schema is invalid or not supported.
    Grammar = 7,
    /// A memory allocation failed.
    Memory = 8,
    /// The device reported an error.
    Device = 9,
    /// The device was lost; the model must be loaded again.
    DeviceLost = 10,
    /// The caller cancelled the operation.
    Cancelled = 11,
    /// The call is invalid in the current state of the object: an empty sequence, a full context, a
    /// generation in progress.
    State = 12,
    /// An internal invariant is violated: a bug in the library, or a model that computes numbers that are
    /// not finite.
    Internal = 13,
    /// The library panicked inside the call; the handle is poisoned.
    Panic = 14,
    /// The handle is NULL, stale, of another type, or was freed.
    Handle = 15,
    /// A resource is in use; the call may succeed later.
    Busy = 16,
    /// A callback called the object that invoked it.
    Reentrant = 17,
    /// A panic left the object unusable; create a new one.
    Poisoned = 18,
    /// The process was forked after the model was loaded.
    Forked = 19,
}

/// An error: kind, message and optional cause.
///
/// Messages go from the general to the specific, start in lower case and have no full stop:
/// `stage 5 config: llama.block_count: 5000000 is over the limit of 4096`. They are [shortened](shorten).
pub struct Error {
    kind: ErrorKind,
    message: Box<str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A result with [`Error`] as its error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error of this kind with this message.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self {
            kind,
            message: printable(&shorten(&message.to_string())).into(),
            source: None,
        }
    }

    /// Attaches the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Message, from the general to the specific.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Prefixes the message of an error.
pub trait Context<T> {
    /// Changes the message to `clause: message`.
    fn context(self, clause: impl fmt::Display) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context(self, clause: impl fmt::Display) -> Self {
        self.map_err(|e| Error {
            message: format!(
                "{}: {}",
                printable(&shorten(&clause.to_string())),
                e.message
            )
            .into(),
            ..e
        })
    }
}

/// Shortens each quoted text and each word of a message to 200 characters, and the message to 1000: they may be of
/// a file or a user, and have any length.
pub fn shorten(message: &str) -> Cow<'_, str> {
    if message.len() <= QUOTED_CHARS_MAX {
        return message.into();
    }
    let mut short = String::new();
    let mut rest = message;
    // Until a quote without an end, which is part of a word: so that each byte is searched a few times at most.
    let mut has_quotes = true;
    while let Some(first) = rest.chars().next() {
        let is_quote = has_quotes && is_quote(first);
        let quoted = is_quote.then(|| quoted_len(rest)).flatten();
        has_quotes &= !is_quote || quoted.is_some();
        let len = match quoted {
            Some(len) => len,
            None if first.is_whitespace() => first.len_utf8(),
            None => first.len_utf8() + word_len(&rest[first.len_utf8()..]),
        };
        let (part, after) = rest.split_at(len);
        // A quoted text keeps its quotes.
        let quotes = usize::from(quoted.is_some());
        short.push_str(&part[..quotes]);
        short.push_str(&excerpt(&part[quotes..part.len() - quotes]));
        short.push_str(&part[part.len() - quotes..]);
        rest = after;
    }
    start(&short, MESSAGE_CHARS_MAX).into_owned().into()
}

/// Escapes control characters of a message, which may be of a file or a user: a terminal or a log would obey them.
/// Keeps line breaks and tabs outside of quoted texts, which messages of several lines have.
fn printable(message: &str) -> Cow<'_, str> {
    if !message.contains(char::is_control) {
        return message.into();
    }
    let mut printable = String::new();
    let mut rest = message;
    while let Some(first) = rest.chars().next() {
        let quoted = is_quote(first).then(|| quoted_len(rest)).flatten();
        let (part, after) = rest.split_at(quoted.unwrap_or(first.len_utf8()));
        for c in part.chars() {
            let is_kept = quoted.is_none() && matches!(c, '\n' | '\t');
            match c.is_control() && !is_kept {
                true => printable.extend(c.escape_default()),
                false => printable.push(c),
            }
        }
        rest = after;
    }
    printable.into()
}

/// Returns the first 200 characters of a text of a file or a user, for a message.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    start(text, QUOTED_CHARS_MAX)
}

/// Returns the first `max` characters of a text, and an ellipsis if it has more.
fn start(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '`')
}

/// Returns the number of bytes of the quoted text at the start of a message; `None` if it has no end.
fn quoted_len(message: &str) -> Option<usize> {
    let quote = message.chars().next();
    let mut is_escaped = false;
    let end = message.char_indices().skip(1).find(|(_, c)| {
        let is_end = Some(*c) == quote && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        is_end
    });
    end.map(|(at, c)| at + c.len_utf8())
}

/// Returns the number of bytes before the next word or quoted text of a message.
fn word_len(message: &str) -> usize {
    let is_end = |c: char| c.is_whitespace() || is_quote(c);
    message.find(is_end).unwrap_or(message.len())
}

/// Returns early with an error: `bail!(Format, "header ends at byte {n}")`.
#[doc(hidden)]
#[macro_export]
macro_rules! bail {
    ($kind:ident, $($message:tt)*) => {
        return Err($crate::error::Error::new($crate::error::ErrorKind::$kind, format_args!($($message)*)))
    };
}
#[doc(hidden)]
pub use bail;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|s| s as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_messages_are_escaped() {
        for (message, expected) in [
            ("a\n\tb", "a\n\tb"),
            ("a \u{1b}[31m b\r", "a \\u{1b}[31m b\\r"),
            (
                "unknown variant `\n\u{b}`, expected `x`",
                "unknown variant `\\n\\u{b}`, expected `x`",
            ),
            ("\"a\tb\" and \"c\n", "\"a\\tb\" and \"c\n"),
            ("é \u{9b}1m", "é \\u{9b}1m"),
        ] {
            let error = Error::new(ErrorKind::Format, message);
            assert_eq!(error.message(), expected);
            let error = Err::<(), _>(Error::new(ErrorKind::Format, "b")).context(message);
            assert_eq!(
                error.expect_err("an error").message(),
                format!("{expected}: b")
            );
        }
    }

    #[test]
    fn foreign_text_in_messages_is_short() {
        let long = "é\"".repeat(5000);
        let kept = "x".repeat(200);
        for (message, expected) in [
            (
                format!("no tensor {:?}: stop", "x".repeat(999)),
                format!("no tensor \"{kept}…\": stop"),
            ),
            (
                format!("a `{}` b", "x".repeat(999)),
                format!("a `{kept}…` b"),
            ),
            (format!("a {} b", "x".repeat(999)), format!("a {kept}… b")),
            (format!("a {kept:?} {kept}"), format!("a {kept:?} {kept}")),
        ] {
            assert_eq!(shorten(&message), expected);
        }
        for message in [
            format!("a {long:?} b"),
            format!("a {long} b"),
            "\"".repeat(9999),
            "a ".repeat(9999),
            format!("`{}", "a ".repeat(9999)),
        ] {
            let count = shorten(&message).chars().count();
            assert!(count <= MESSAGE_CHARS_MAX + 1, "{count}");
        }
        let quoted = Error::new(ErrorKind::Argument, format_args!("a {long:?} b"));
        assert!(quoted.message().chars().count() <= 210, "{quoted}");
        let clause: Result<()> = Err(Error::new(ErrorKind::Argument, "b"));
        let error = clause.context(long.replace('"', "")).expect_err("an error");
        assert!(error.message().chars().count() <= 210, "{error}");
    }
}
