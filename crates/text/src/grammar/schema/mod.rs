//! JSON schemas in the form that llguidance compiles.
//!
//! [`prepare`] resolves references, checks every keyword, closes objects and converts what llguidance
//! interprets differently. llguidance follows each reference recursively, which could overflow the stack. So
//! the depth is limited first: the sum of the depths of the schema and of each definition that it
//! references. Referenced definitions are in `$defs`, under names that need no escapes in a JSON pointer.

mod close;
mod fields;
pub(super) mod keywords;
mod normalize;
mod numbers;
mod one_of;
mod references;
pub(crate) mod strings;
#[cfg(test)]
mod tests;
pub(crate) mod types;
mod uri;

pub(crate) use fields::Position;
use normalize::{Normalizer, Unsupported};
use serde_json::{Value as Json, json};
use tabla_core::error::{Result, bail};

/// Maximum length of a schema as text in bytes.
const BYTES_MAX: usize = 256 << 10;
/// Maximum nesting depth of JSON values, as in `serde_json`.
const DEPTH_MAX: usize = 127;

/// White space between tokens in the output: nothing, a space, or a line break and an indentation. It is
/// limited because small models may otherwise generate white space without end.
const WHITE_SPACE: &str = r"\x20|\n(\x20{0,20}|\t{0,10})";

/// Returns the form of a JSON schema that a grammar applies, for `%json` in a Lark grammar: references are
/// resolved, and an object that declares properties and says nothing of others has no others.
/// [`Grammar::JsonSchema`](crate::Grammar::JsonSchema) applies it.
///
/// # Errors
/// `TooLarge` over the limits; `Grammar` with a JSON pointer for what a grammar cannot express.
pub fn prepare_schema(schema: &Json) -> Result<Json> {
    prepare(schema, Position::Root)
}

/// Returns the form of a schema that llguidance compiles.
///
/// # Errors
/// `TooLarge` over the limits; `Grammar` with a JSON pointer for invalid references, invalid values of
/// keywords, and keywords that a grammar cannot express.
pub(crate) fn prepare(schema: &Json, position: Position) -> Result<Json> {
    convert(schema, position, Unsupported::Refuse)
}

/// Returns the form of a schema without the restrictions that a grammar cannot express. `warnings` receives
/// a message for each.
///
/// # Errors
/// As [`prepare`], apart from keywords.
pub(super) fn prepare_relaxed(schema: &Json, warnings: &mut Vec<String>) -> Result<Json> {
    convert(schema, Position::Root, Unsupported::Remove(warnings))
}

fn convert(schema: &Json, position: Position, unsupported: Unsupported<'_>) -> Result<Json> {
    check_depth(schema)?;
    let bytes = schema.to_string().len();
    if bytes > BYTES_MAX {
        bail!(
            TooLarge,
            "schema: {bytes} bytes exceed the limit of {BYTES_MAX}"
        );
    }
    let mut normalizer = Normalizer::new(schema, position, unsupported)?;
    let mut prepared = normalizer.root()?;
    one_of::check(&mut prepared, &mut normalizer)?;
    close::remove_marks(&mut prepared);
    let options = schema.get("x-guidance").cloned();
    if let Json::Object(fields) = &mut prepared {
        fields.insert("x-guidance".into(), with_defaults(options));
    }
    Ok(prepared)
}

/// Returns the options of llguidance with default values.
fn with_defaults(options: Option<Json>) -> Json {
    let mut options = options.unwrap_or_else(|| json!({}));
    if let Json::Object(options) = &mut options {
        // `one_of` has checked that it is `anyOf`.
        options.insert("coerce_one_of".into(), true.into());
        if !options.contains_key("whitespace_flexible") {
            let pattern = options.entry("whitespace_pattern");
            pattern.or_insert(WHITE_SPACE.into());
        }
    }
    options
}

/// Checks the nesting depth. Not recursive, because values that were not parsed from text have no
/// depth limit.
pub(super) fn check_depth(schema: &Json) -> Result<()> {
    let mut open = vec![(schema, 1)];
    while let Some((value, depth)) = open.pop() {
        if depth > DEPTH_MAX {
            bail!(TooLarge, "schema: nested deeper than {DEPTH_MAX} levels");
        }
        match value {
            Json::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Json::Object(fields) => open.extend(fields.values().map(|v| (v, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}
