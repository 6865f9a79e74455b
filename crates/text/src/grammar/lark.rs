//! Grammars in Lark's syntax and expressions: what the library leaves unbounded is looked for here.

use super::limits::within;
use super::schema;
use serde_json::{Deserializer, Value as Json};
use tabla_core::error::{Context, Result, bail};

/// Holds a grammar to its bounds: its length, which bounds what nests, and the schemas in it.
pub(super) fn check(text: &str) -> Result<()> {
    within("the grammar", text)?;
    const SCHEMA: &str = "%json";
    for (at, _) in text.match_indices(SCHEMA) {
        let behind = &text[at + SCHEMA.len()..];
        // What is no JSON the library refuses, unless it stands in a string or a comment.
        if let Some(Ok(schema)) = Deserializer::from_str(behind).into_iter::<Json>().next() {
            let line = text[..at].matches('\n').count() + 1;
            schema::bounded(&schema).context(format_args!("line {line}"))?;
        }
    }
    Ok(())
}

/// The grammar of what an expression matches from start to end; anchors there say nothing more.
pub(super) fn of_regex(regex: &str) -> Result<String> {
    within("the expression", regex)?;
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let escapes = |text: &str| text.len() - text.trim_end_matches('\\').len();
    let regex = match regex.strip_suffix('$') {
        Some(rest) if escapes(rest) % 2 == 0 => rest,
        _ => regex,
    };
    if escapes(regex) % 2 == 1 {
        bail!(Grammar, "the expression ends behind a backslash");
    }
    if regex.is_empty() {
        return Ok(r#"start: """#.into());
    }
    Ok(format!("start: /{}/", llguidance::regex_to_lark(regex, "")))
}
