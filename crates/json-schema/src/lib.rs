//! Whether a text matches a JSON schema. The code of `jsonschema` is generic: every crate that calls it compiles all of
//! it, so this crate is the only one, and is not optimized.

use serde_json::Value;

/// Validates a text against a schema, with formats. Returns `Ok(false)` if the validator cannot decide.
///
/// # Errors
/// What does not match, or why the schema is not valid.
pub fn is_valid(schema: &Value, text: &str) -> Result<bool, String> {
    let validator = jsonschema::options().should_validate_formats(true);
    let validator = validator
        .build(schema)
        .map_err(|e| format!("the schema is not valid: {e}"))?;
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        // The number of digits is not limited, so a number may exceed f64.
        Err(e) if e.to_string().starts_with("number out of range") => return Ok(false),
        Err(e) => return Err(e.to_string()),
    };
    match validator.validate(&value) {
        Ok(()) => Ok(true),
        // llguidance allows a leap second in every minute.
        Err(_) if text.contains(":60") => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}
