//! Conversion of llguidance errors.

use tabla_core::error::{Error, ErrorKind, excerpt};

/// Converts an llguidance error. Removes the traces that follow its message.
pub(super) fn grammar_error(error: impl std::fmt::Display) -> Error {
    let text = error.to_string();
    let end = ["\n<backtrace>", "\n<state>", "\n<non-verbose/>"]
        .iter()
        .filter_map(|marker| text.find(marker))
        .min();
    let text = text[..end.unwrap_or(text.len())].trim();
    match regex_parts(text) {
        Some((regex, cause)) => Error::new(
            ErrorKind::Grammar,
            format_args!("invalid regular expression \"{}\": {cause}", excerpt(regex)),
        ),
        // A line may be one of the grammar.
        None => {
            let lines: Vec<_> = text.lines().map(excerpt).collect();
            Error::new(ErrorKind::Grammar, lines.join("\n"))
        }
    }
}

/// Splits an error of `regex_syntax` into the expression and the cause. Between them is a line that marks the place.
fn regex_parts(text: &str) -> Option<(&str, &str)> {
    let (_, text) = text.split_once("regex parse error:\n")?;
    let (regex, cause) = text.rsplit_once("\nerror: ")?;
    let regex = regex.rsplit_once('\n').map_or(regex, |(regex, _)| regex);
    Some((regex.trim(), cause.lines().next()?))
}
