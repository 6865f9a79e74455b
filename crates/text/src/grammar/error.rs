//! Conversion of llguidance errors.

use tabla_core::error::{Error, ErrorKind};

/// Converts an llguidance error. Removes the traces that follow its message.
pub(super) fn grammar_error(error: impl std::fmt::Display) -> Error {
    let text = error.to_string();
    let end = ["\n<backtrace>", "\n<state>", "\n<non-verbose/>"]
        .iter()
        .filter_map(|marker| text.find(marker))
        .min();
    Error::new(ErrorKind::Grammar, text[..end.unwrap_or(text.len())].trim())
}
