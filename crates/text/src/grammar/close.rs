//! Closes the objects of JSON schemas: without undeclared properties.

use super::schema::check_depth;
use serde_json::{Map, Value as Json};

/// Keywords that allow or require further properties.
const FURTHER: &[&str] = &[
    "additionalProperties",
    "const",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "enum",
    "if",
    "minProperties",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
];
/// Further keywords that say something of the properties of an object.
const OBJECT: &[&str] = &["properties", "required"];
/// Keywords with a list of schemas for the same value.
const PARTS: &[&str] = &["allOf", "anyOf", "oneOf"];
/// Other keywords whose value is a schema or a list of schemas.
const SCHEMAS: &[&str] = &["additionalProperties", "items", "prefixItems"];
/// Keywords whose value is a map from names to schemas.
const MAPS: &[&str] = &["$defs", "definitions", "properties"];

/// Sets `additionalProperties` to false in objects that declare properties and do not say whether others are
/// allowed. JSON Schema allows others then, but authors of schemas for a model seldom mean that, and a small
/// model would add them without end. llama.cpp and vLLM close these objects too. A schema in which several
/// parts describe the same object is unchanged, because a closed part would exclude the properties of another; so
/// is one that is nested too deep for a grammar.
pub fn close_objects(schema: &mut Json) {
    if check_depth(schema).is_ok() && !combines(schema) {
        close(schema);
    }
}

/// Returns whether several parts describe the same object, and one of them would be closed.
fn combines(schema: &Json) -> bool {
    let Some(fields) = schema.as_object() else {
        return false;
    };
    let mut keys = FURTHER.iter().chain(OBJECT);
    let describes = keys.any(|key| fields.contains_key(*key));
    let several = fields
        .get("allOf")
        .and_then(Json::as_array)
        .is_some_and(|all| all.len() > 1);
    let would_close = fields.contains_key("$ref") || parts(fields).any(declares);
    (describes || several) && would_close || children(fields).any(combines)
}

/// Returns whether a part of a schema declares properties.
fn declares(part: &Json) -> bool {
    let Some(fields) = part.as_object() else {
        return false;
    };
    fields.contains_key("properties") || fields.contains_key("$ref") || parts(fields).any(declares)
}

/// Returns the schemas for the same value.
fn parts(fields: &Map<String, Json>) -> impl Iterator<Item = &Json> {
    let lists = PARTS.iter().filter_map(|key| fields.get(*key)?.as_array());
    lists.flatten()
}

/// Returns all schemas within a schema.
fn children(fields: &Map<String, Json>) -> impl Iterator<Item = &Json> {
    let lists = SCHEMAS.iter().filter_map(|key| fields.get(*key));
    let lists = lists.flat_map(|value| match value {
        Json::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    });
    let maps = MAPS.iter().filter_map(|key| fields.get(*key)?.as_object());
    parts(fields).chain(lists).chain(maps.flat_map(Map::values))
}

fn close(schema: &mut Json) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    if !allows_further(fields) && declares_all(fields) {
        fields.insert("additionalProperties".to_string(), false.into());
    }
    for key in PARTS.iter().chain(SCHEMAS) {
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

/// Returns whether a schema allows or requires properties that it does not declare.
pub(super) fn allows_further(fields: &Map<String, Json>) -> bool {
    FURTHER.iter().any(|key| fields.contains_key(*key))
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
    use crate::grammar::RelaxedSchema;
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
    fn parts_without_properties_and_names_of_properties_do_not_combine() {
        for (schema, expected) in [
            (
                json!({ "properties": { "a": {}, "b": {} }, "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] }),
                json!({ "properties": { "a": {}, "b": {} }, "anyOf": [{ "required": ["a"] }, { "required": ["b"] }], "additionalProperties": false }),
            ),
            (
                json!({ "properties": { "properties": {}, "$ref": { "type": "string" } } }),
                json!({ "properties": { "properties": {}, "$ref": { "type": "string" } }, "additionalProperties": false }),
            ),
        ] {
            assert_eq!(closed(schema), expected);
        }
    }

    #[test]
    fn keywords_that_are_not_enforced_still_keep_an_object_open() {
        let conditional = json!({
            "properties": { "a": {} },
            "if": { "required": ["a"] },
            "then": { "properties": { "b": {} } },
        });
        let relaxed = RelaxedSchema::new(&conditional).schema;
        assert_eq!(closed(relaxed)["additionalProperties"], true);
    }

    #[test]
    fn schemas_that_say_it_or_combine_objects_are_unchanged() {
        for schema in [
            json!({ "properties": { "a": {} }, "additionalProperties": true }),
            json!({ "properties": { "a": {} }, "patternProperties": { "^x-": {} } }),
            json!({ "properties": { "a": {} }, "required": ["b"] }),
            json!({ "properties": { "a": {} }, "minProperties": 2 }),
            json!({ "properties": { "a": {} }, "const": { "a": 1, "b": 2 } }),
            json!({ "$ref": "#/$defs/a", "required": ["x"], "$defs": { "a": { "properties": { "a": {} } } } }),
            json!({ "allOf": [{ "$ref": "#/$defs/a" }], "required": ["x"], "$defs": { "a": { "properties": { "a": {} } } } }),
            json!({ "required": ["b"], "anyOf": [{ "properties": { "a": {} } }, { "properties": { "c": {} } }] }),
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
