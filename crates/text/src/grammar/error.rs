//! Errors of llguidance.

use tabla_core::error::{Error, ErrorKind};

/// An error of the library, without the traces that it puts behind its sentences.
pub(super) fn refused(error: impl std::fmt::Display) -> Error {
    let text = error.to_string();
    let end = ["\n<backtrace>", "\n<state>", "\n<non-verbose/>"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    Error::new(ErrorKind::Grammar, text[..end.unwrap_or(text.len())].trim())
}
