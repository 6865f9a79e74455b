//! Checks the types in JSON schemas. An unknown type is a mistake of the client, unlike a keyword that a
//! grammar cannot express.

use serde_json::Value;

/// Types of values.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// Keywords whose value is an object of schemas.
const MAPS: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];

/// Keywords whose value is a schema, or a list of schemas.
const SCHEMAS: [&str; 16] = [
    "items",
    "prefixItems",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "contains",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "contentSchema",
];

/// Checks the types in a schema and in the schemas that it contains.
///
/// # Errors
///
/// The path and the value of the first unknown type.
pub(super) fn check_types(schema: &Value) -> Result<(), String> {
    check(schema, "schema")
}

fn check(schema: &Value, path: &str) -> Result<(), String> {
    for (key, value) in schema.as_object().into_iter().flatten() {
        let key = key.as_str();
        let path = format!("{path}.{key}");
        if key == "type" {
            check_type(value, &path)?;
        } else if MAPS.contains(&key) {
            for (name, schema) in value.as_object().into_iter().flatten() {
                check(schema, &format!("{path}.{name}"))?;
            }
        } else if SCHEMAS.contains(&key) {
            check(value, &path)?;
            for (at, schema) in value.as_array().into_iter().flatten().enumerate() {
                check(schema, &format!("{path}[{at}]"))?;
            }
        }
    }
    Ok(())
}

/// Checks a type, or a list of types.
fn check_type(kind: &Value, path: &str) -> Result<(), String> {
    let is_type = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    let is_known = match kind {
        // Some clients write null for no restriction.
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().all(is_type),
        kind => is_type(kind),
    };
    match is_known {
        true => Ok(()),
        false => Err(format!(
            "{path}: unknown type {kind}, expected one of {}",
            TYPES.join(", ")
        )),
    }
}
