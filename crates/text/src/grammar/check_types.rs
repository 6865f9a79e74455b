//! Checks the types in JSON schemas. An unknown type is a mistake, unlike a keyword that a grammar cannot
//! express.

use super::schema::check_depth;
use super::schema::keywords::{KeywordValue, TYPES, value_of};
use serde_json::Value as Json;
use tabla_core::error::{Result, bail, excerpt};

/// Checks the types in a schema and in the schemas within it.
///
/// # Errors
///
/// `Grammar` with the path of the first unknown type, `TooLarge` for a schema that is nested too deep.
pub fn check_schema_types(schema: &Json) -> Result<()> {
    check_depth(schema)?;
    check(schema, "schema")
}

fn check(schema: &Json, path: &str) -> Result<()> {
    for (key, value) in schema.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        match value_of(key) {
            Some(KeywordValue::Schemas) => check_all(value, &path)?,
            Some(KeywordValue::Named) => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    check_all(value, &format!("{path}.{name}"))?;
                }
            }
            None if key == "type" => check_type(value, &path)?,
            None => {}
        }
    }
    Ok(())
}

/// Checks a schema or a list of schemas.
fn check_all(value: &Json, path: &str) -> Result<()> {
    let Json::Array(schemas) = value else {
        return check(value, path);
    };
    let mut schemas = schemas.iter().enumerate();
    schemas.try_for_each(|(at, schema)| check(schema, &format!("{path}[{at}]")))
}

/// Checks a type, or a list of types.
fn check_type(kind: &Json, path: &str) -> Result<()> {
    let is_type = |kind: &Json| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    let is_known = match kind {
        // Some clients write null for no restriction.
        Json::Null => true,
        Json::Array(kinds) => kinds.iter().all(is_type),
        kind => is_type(kind),
    };
    if !is_known {
        let types = TYPES.join(", ");
        bail!(
            Grammar,
            "{}: unknown type {kind}, expected one of {types}",
            excerpt(path)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_types_have_a_path() {
        for (schema, path) in [
            (json!({ "type": "strng" }), "schema.type"),
            (
                json!({ "properties": { "a": { "type": 1 } } }),
                "schema.properties.a.type",
            ),
            (
                json!({ "$defs": { "a": { "anyOf": [{}, { "type": ["null", "x"] }] } } }),
                "schema.$defs.a.anyOf[1].type",
            ),
            (
                json!({ "items": { "not": { "type": "x" } } }),
                "schema.items.not.type",
            ),
        ] {
            let error = check_schema_types(&schema).expect_err("an unknown type");
            assert!(
                error
                    .message()
                    .starts_with(&format!("{path}: unknown type")),
                "{error}"
            );
        }
        let schema = json!({
            "type": ["object", "null"], "properties": { "type": { "type": null } }, "enum": [{ "type": "x" }],
        });
        check_schema_types(&schema).expect("known types");
    }
}
