//! Closes the objects of JSON schemas: without undeclared properties.

use serde_json::{Map, Value as Json};

/// Keywords that allow or require further properties.
const FURTHER: &[&str] = &[
    "additionalProperties",
    "dependencies",
    "dependentSchemas",
    "if",
    "patternProperties",
    "unevaluatedProperties",
];
/// Keywords whose value is a schema or a list of schemas.
const SCHEMAS: &[&str] = &[
    "additionalProperties",
    "allOf",
    "anyOf",
    "items",
    "oneOf",
    "prefixItems",
];
/// Keywords whose value is a map from names to schemas.
const MAPS: &[&str] = &["$defs", "definitions", "properties"];

/// Sets `additionalProperties` to false in objects that declare properties and do not say whether others are
/// allowed. JSON Schema allows others then, but authors of schemas for a model seldom mean that, and a small
/// model would add them without end. llama.cpp and vLLM close these objects too. A schema in which several
/// objects apply to one value (`allOf`) is unchanged.
pub fn close_objects(schema: &mut Json) {
    if !combines(schema) {
        close(schema);
    }
}

/// Whether several schemas apply to one value, where a closed one would exclude properties of the others.
fn combines(schema: &Json) -> bool {
    match schema {
        Json::Array(items) => items.iter().any(combines),
        Json::Object(fields) => {
            let all = fields.get("allOf").and_then(Json::as_array);
            let has_parts = ["$ref", "allOf", "anyOf", "oneOf"]
                .iter()
                .any(|key| fields.contains_key(*key));
            all.is_some_and(|all| all.len() > 1)
                || has_parts && fields.contains_key("properties")
                || fields.values().any(combines)
        }
        _ => false,
    }
}

fn close(schema: &mut Json) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    let has_further = FURTHER.iter().any(|key| fields.contains_key(*key));
    if !has_further && declares_all(fields) {
        fields.insert("additionalProperties".to_string(), false.into());
    }
    for key in SCHEMAS {
        match fields.get_mut(*key) {
            Some(Json::Array(items)) => items.iter_mut().for_each(close),
            Some(item) => close(item),
            None => {}
        }
    }
    for key in MAPS {
        let map = fields.get_mut(*key).and_then(Json::as_object_mut);
        map.into_iter()
            .flatten()
            .for_each(|(_, schema)| close(schema));
    }
}

/// Returns whether an object declares properties, and each that it requires.
fn declares_all(fields: &Map<String, Json>) -> bool {
    let Some(properties) = fields.get("properties").and_then(Json::as_object) else {
        return false;
    };
    let required = fields.get("required").and_then(Json::as_array);
    let mut names = required.into_iter().flatten().filter_map(Json::as_str);
    names.all(|name| properties.contains_key(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn closed(mut schema: Json) -> Json {
        close_objects(&mut schema);
        schema
    }

    #[test]
    fn objects_with_properties_are_closed_everywhere() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a": { "anyOf": [{ "$ref": "#/$defs/b" }, { "type": "null" }] },
                "any": { "type": "object" },
                "map": { "type": "object", "additionalProperties": { "properties": { "x": {} } } },
                "list": { "items": { "properties": { "additionalProperties": { "type": "string" } } } },
            },
            "$defs": { "b": { "properties": { "c": { "type": "string" } } } },
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "a": { "anyOf": [{ "$ref": "#/$defs/b" }, { "type": "null" }] },
                "any": { "type": "object" },
                "map": { "type": "object", "additionalProperties": { "properties": { "x": {} }, "additionalProperties": false } },
                "list": { "items": {
                    "properties": { "additionalProperties": { "type": "string" } },
                    "additionalProperties": false,
                } },
            },
            "additionalProperties": false,
            "$defs": { "b": { "properties": { "c": { "type": "string" } }, "additionalProperties": false } },
        });
        assert_eq!(closed(schema), expected);
    }

    #[test]
    fn schemas_that_say_it_or_combine_objects_are_unchanged() {
        for schema in [
            json!({ "properties": { "a": {} }, "additionalProperties": true }),
            json!({ "properties": { "a": {} }, "patternProperties": { "^x-": {} } }),
            json!({ "properties": { "a": {} }, "required": ["b"] }),
            json!({ "allOf": [{ "properties": { "a": {} } }, { "properties": { "b": {} } }] }),
            json!({ "properties": { "a": {} }, "anyOf": [{ "required": ["a"] }, { "properties": { "b": {} } }] }),
            json!({ "$ref": "#/$defs/a", "properties": { "b": {} }, "$defs": { "a": { "properties": { "a": {} } } } }),
            json!({ "enum": [{ "properties": {} }], "default": { "properties": {} } }),
            json!(true),
        ] {
            assert_eq!(closed(schema.clone()), schema);
        }
    }
}
