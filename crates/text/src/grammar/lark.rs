//! Checks of Lark grammars, and conversion of regexes to Lark.

use super::limits::check_length;
use super::schema;
use serde_json::{Deserializer, Value as Json};
use tabla_core::error::{Context, Result, bail};

/// Checks the limits of a grammar: its length, which limits nesting, and its embedded schemas.
pub(super) fn check(text: &str) -> Result<()> {
    check_length("grammar", text)?;
    const SCHEMA: &str = "%json";
    for (at, _) in text.match_indices(SCHEMA) {
        let after = &text[at + SCHEMA.len()..];
        // llguidance rejects invalid JSON, unless it is in a string or a comment.
        if let Some(Ok(schema)) = Deserializer::from_str(after).into_iter::<Json>().next() {
            let line = text[..at].matches('\n').count() + 1;
            schema::prepare_schema(&schema).context(format_args!("line {line}"))?;
        }
    }
    Ok(())
}

/// Converts a regex that must match the whole text. Anchors at its start and end are redundant.
pub(super) fn from_regex(regex: &str) -> Result<String> {
    check_length("regex", regex)?;
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let escapes = |text: &str| text.len() - text.trim_end_matches('\\').len();
    let regex = match regex.strip_suffix('$') {
        Some(rest) if escapes(rest) % 2 == 0 => rest,
        _ => regex,
    };
    if escapes(regex) % 2 == 1 {
        bail!(Grammar, "regex: incomplete escape at the end");
    }
    if regex.is_empty() {
        return Ok(r#"start: """#.into());
    }
    Ok(format!("start: /{}/", llguidance::regex_to_lark(regex, "")))
}
