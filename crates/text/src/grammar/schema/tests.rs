//! Tests of prepared schemas. What grammars accept is in `grammar/schema_tests.rs`.

use super::*;
use tabla_testkit::fixed_json;

/// Returns a prepared schema without options.
fn prepared(schema: Json) -> Json {
    let mut prepared = prepare_schema(&schema).unwrap_or_else(|e| panic!("{schema}: {e}"));
    let again = prepare_schema(&prepared).unwrap_or_else(|e| panic!("{prepared}: {e}"));
    assert_eq!(again, prepared, "preparing twice changes nothing");
    if let Some(fields) = prepared.as_object_mut() {
        fields.remove("x-guidance");
    }
    prepared
}

fn check(schema: Json, expected: Json) {
    assert_eq!(prepared(schema.clone()), expected, "{schema}");
}

fn refused(schema: &Json) -> String {
    let error = prepare_schema(schema).expect_err("an error");
    error.message().to_string()
}

#[test]
fn objects_with_properties_are_closed_everywhere() {
    check(
        fixed_json!({
            "properties": {
                "a": { "anyOf": [{ "$ref": "#/$defs/b" }, { "type": "null" }] },
                "any": { "type": "object" },
                "map": { "additionalProperties": { "properties": { "x": {} } } },
                "list": { "items": { "properties": { "additionalProperties": { "type": "string" } } } },
            },
            "$defs": { "b": { "properties": { "c": { "type": "string" } }, "type": ["object", "null"] } },
        }),
        fixed_json!({
            "properties": {
                "a": { "anyOf": [{ "$ref": "#/$defs/b" }, { "type": "null" }] },
                "any": { "type": "object" },
                "map": { "additionalProperties": { "properties": { "x": {} }, "additionalProperties": false, "type": "object" } },
                "list": { "items": {
                    "properties": { "additionalProperties": { "type": "string" } },
                    "additionalProperties": false,
                    "type": "object",
                } },
            },
            "additionalProperties": false,
            "type": "object",
            "$defs": { "b": { "properties": { "c": { "type": "string" } }, "type": ["object", "null"], "additionalProperties": false } },
        }),
    );
}

#[test]
fn objects_of_several_parts_are_closed_as_a_whole() {
    // Parts of `allOf`, one of them a definition that is closed where it is alone.
    check(
        fixed_json!({
            "allOf": [{ "$ref": "#/$defs/a" }, { "properties": { "b": {} } }],
            "properties": { "c": { "$ref": "#/$defs/a" } },
            "$defs": { "a": { "properties": { "a": {} } } },
        }),
        fixed_json!({
            "allOf": [{ "$ref": "#/$defs/a" }, { "properties": { "b": {} } }],
            "properties": { "c": { "$ref": "#/$defs/a-1" }, "a": true, "b": true },
            "additionalProperties": false,
            "type": "object",
            "$defs": {
                "a": { "properties": { "a": {} } },
                "a-1": { "properties": { "a": {} }, "additionalProperties": false, "type": "object" },
            },
        }),
    );
    // Alternatives, which have the properties of the object around them.
    check(
        fixed_json!({ "properties": { "k": {} }, "anyOf": [{ "properties": { "a": {} } }, { "required": ["k"] }] }),
        fixed_json!({
            "properties": { "k": {} },
            "anyOf": [
                { "properties": { "a": {}, "k": true }, "additionalProperties": false, "type": "object" },
                { "required": ["k"], "properties": { "k": true }, "additionalProperties": false, "type": "object" },
            ],
        }),
    );
    check(
        fixed_json!({ "properties": { "a": {}, "b": {} }, "anyOf": [{ "required": ["a"] }, { "required": ["b"] }], "minProperties": 1 }),
        fixed_json!({
            "properties": { "a": {}, "b": {} }, "anyOf": [{ "required": ["a"] }, { "required": ["b"] }], "minProperties": 1,
            "additionalProperties": false, "type": "object",
        }),
    );
    check(
        fixed_json!({ "properties": { "a": {} }, "unevaluatedProperties": false, "allOf": [{ "properties": { "b": {} } }] }),
        fixed_json!({
            "properties": { "a": {}, "b": true }, "allOf": [{ "properties": { "b": {} } }],
            "additionalProperties": false, "type": "object",
        }),
    );
}

#[test]
fn schemas_that_allow_other_properties_are_open() {
    for schema in [
        fixed_json!({ "properties": { "a": {} }, "additionalProperties": true }),
        fixed_json!({ "properties": { "a": {} }, "patternProperties": { "^x-": {} } }),
        fixed_json!({ "properties": { "a": {} }, "required": ["b"] }),
        fixed_json!({ "properties": { "a": {} }, "const": { "a": 1, "b": 2 } }),
        fixed_json!({ "type": "object" }),
        fixed_json!({ "required": ["b"], "anyOf": [{ "properties": { "a": {} } }, { "properties": { "c": {} } }] }),
        fixed_json!({ "allOf": [{ "properties": { "a": {} } }, { "properties": { "b": {} }, "additionalProperties": true }] }),
        fixed_json!({ "enum": [{ "properties": {} }] }),
    ] {
        check(schema.clone(), schema);
    }
    check(json!(true), json!({}));
    check(
        fixed_json!({ "title": "Anything" }),
        fixed_json!({ "type": "object" }),
    );
}

#[test]
fn references_by_identifier_are_resolved() {
    let ids = fixed_json!({
        "$id": "https://example.com/root.json",
        "items": { "anyOf": [
            { "$ref": "item.json" },
            { "$ref": "https://example.com/item.json#part" },
            { "$ref": "#name" },
            { "$ref": "item.json#/$defs/deep" },
            { "$ref": "old.json#/definitions/plain" },
        ] },
        "$defs": {
            "item": {
                "$id": "item.json",
                "$ref": "#part",
                "$defs": {
                    "part": { "$anchor": "part", "type": "integer" },
                    "deep": { "items": { "$ref": "#part" } },
                },
            },
            "name": { "$anchor": "name", "type": "boolean" },
            "old": { "$id": "old.json", "definitions": { "plain": { "$id": "#plain", "type": "null" } } },
        },
    });
    check(
        ids,
        fixed_json!({
            "items": { "anyOf": [
                { "$ref": "#/$defs/item" },
                { "$ref": "#/$defs/part" },
                { "$ref": "#/$defs/name" },
                { "$ref": "#/$defs/deep" },
                { "$ref": "#/$defs/plain" },
            ] },
            "$defs": {
                "plain": { "type": "null" },
                "deep": { "items": { "$ref": "#/$defs/part" } },
                "name": { "type": "boolean" },
                "part": { "type": "integer" },
                "item": { "$ref": "#/$defs/part" },
            },
        }),
    );
    for (schema, expected) in [
        (
            fixed_json!({ "items": { "$ref": "https://example.com/a" } }),
            "schema: #/items/$ref: \"https://example.com/a\" is not within the schema; expected a reference to a place (#/$defs/name), an $anchor or an $id in the schema",
        ),
        (
            fixed_json!({ "$ref": "#/a" }),
            "schema: #/$ref: \"#/a\" does not exist",
        ),
        (
            fixed_json!({ "$ref": "#a" }),
            "schema: #/$ref: \"#a\" does not exist",
        ),
        (
            fixed_json!({ "$dynamicRef": "#a" }),
            "schema: #/$dynamicRef: \"#a\" does not exist",
        ),
        (
            fixed_json!({ "$ref": 1 }),
            "schema: #/$ref: expected a string, got 1",
        ),
    ] {
        assert_eq!(refused(&schema), expected);
        let error = prepare_relaxed(&schema, &mut Vec::new()).expect_err("an error");
        assert_eq!(error.message(), expected, "relaxed");
    }
}

/// The outermost schema with the anchor is the target, as in the example of a tree in the specification.
#[test]
fn dynamic_references_have_the_outermost_target() {
    let tree = fixed_json!({
        "$id": "https://example.com/tree", "$dynamicAnchor": "node", "type": "object",
        "properties": { "data": true, "children": { "items": { "$dynamicRef": "#node" } } },
        "additionalProperties": false,
    });
    let strict = json!({
        "$id": "https://example.com/strict-tree", "$dynamicAnchor": "node",
        "$ref": "tree", "required": ["data"], "$defs": { "tree": tree },
    });
    check(
        strict,
        fixed_json!({
            "$ref": "#/$defs/tree", "required": ["data"],
            "$defs": { "tree": {
                "type": "object",
                "properties": { "data": true, "children": { "items": { "$ref": "#" } } },
                "additionalProperties": false,
            } },
        }),
    );
    check(
        fixed_json!({ "$recursiveAnchor": true, "items": { "$recursiveRef": "#" } }),
        fixed_json!({ "items": { "$ref": "#" } }),
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn keywords_are_converted_or_refused() {
    for (schema, expected) in [
        (
            fixed_json!({ "items": [{ "type": "string" }], "additionalItems": false, "x-order": 1, "$schema": "http://json-schema.org/draft-04/schema#" }),
            fixed_json!({ "prefixItems": [{ "type": "string" }], "items": false }),
        ),
        (
            fixed_json!({ "type": "string", "nullable": true, "enum": ["a"] }),
            fixed_json!({ "type": ["string", "null"], "enum": ["a", null] }),
        ),
        (
            fixed_json!({ "uniqueItems": false, "if": {}, "contains": {}, "minContains": 0, "not": false, "minLength": 2.0, "maxContains": 3 }),
            fixed_json!({ "minLength": 2 }),
        ),
        (
            fixed_json!({ "type": "object", "propertyNames": { "type": "string" }, "minProperties": 0 }),
            fixed_json!({ "type": "object" }),
        ),
        (
            fixed_json!({ "type": "object", "propertyNames": { "enum": ["a", "b.c"] }, "additionalProperties": { "type": "null" } }),
            fixed_json!({ "type": "object", "additionalProperties": false, "patternProperties": { "^(?:a|b\\.c)$": { "type": "null" } } }),
        ),
        (
            fixed_json!({ "type": "array", "prefixItems": [true], "unevaluatedItems": false }),
            fixed_json!({ "type": "array", "prefixItems": [true], "items": false }),
        ),
        (
            fixed_json!({ "type": "integer", "format": "int32", "title": "N" }),
            fixed_json!({ "type": "integer" }),
        ),
    ] {
        // Without the last keyword of the first case, `contains` is refused.
        let mut schema = schema;
        schema
            .as_object_mut()
            .map(|fields| fields.remove("maxContains"));
        check(schema, expected);
    }
    for (schema, expected) in [
        (
            fixed_json!({ "type": "strng" }),
            "#/type: unknown type \"strng\", expected one of array, boolean, integer, null, number, object, string",
        ),
        (
            fixed_json!({ "properties": { "a/b": { "uniqueItems": true } } }),
            "#/properties/a~1b/uniqueItems: uniqueItems is not supported",
        ),
        (
            fixed_json!({ "items": { "not": {} } }),
            "#/items/not: not is not supported",
        ),
        (
            fixed_json!({ "if": {}, "then": { "type": "null" } }),
            "#/if: if is not supported",
        ),
        (
            fixed_json!({ "contains": {} }),
            "#/contains: contains is not supported",
        ),
        (
            fixed_json!({ "contains": {}, "minContains": 0, "maxContains": 1 }),
            "#/contains: contains is not supported",
        ),
        (
            fixed_json!({ "dependentRequired": { "a": ["b"] } }),
            "#/dependentRequired: dependentRequired is not supported",
        ),
        (
            fixed_json!({ "dependentSchemas": { "a": {} } }),
            "#/dependentSchemas: dependentSchemas is not supported",
        ),
        (
            fixed_json!({ "dependencies": { "a": ["b"] } }),
            "#/dependencies: dependencies is not supported",
        ),
        (
            fixed_json!({ "propertyNames": { "minLength": 2 } }),
            "#/propertyNames: propertyNames is not supported",
        ),
        (
            fixed_json!({ "anyOf": [{ "properties": { "a": {} } }], "unevaluatedProperties": false, "oneOf": [{}] }),
            "#/unevaluatedProperties: unevaluatedProperties is not supported",
        ),
        (
            fixed_json!({ "allOf": [{}], "unevaluatedItems": false }),
            "#/unevaluatedItems: unevaluatedItems is not supported",
        ),
        (
            fixed_json!({ "minProperties": 2 }),
            "#/minProperties: 2: a grammar cannot count properties without fixed names, because a name can occur twice",
        ),
        (
            fixed_json!({ "format": "idn-email" }),
            "#/format: \"idn-email\": unknown format",
        ),
        (
            fixed_json!({ "pattern": "(?=a)" }),
            "#/pattern: \"(?=a)\": look-around is not supported",
        ),
        (
            fixed_json!({ "patternProperties": { "\\ba": {} } }),
            "#/patternProperties/\\ba: word boundaries are not supported",
        ),
        (
            fixed_json!({ "minItems": -1 }),
            "#/minItems: expected a number of elements, got -1",
        ),
        (
            fixed_json!({ "enum": [] }),
            "#/enum: expected a list of values, got []",
        ),
        (
            fixed_json!({ "multipleOf": 0 }),
            "#/multipleOf: expected a number above 0, got 0",
        ),
        (
            fixed_json!({ "minimum": "1" }),
            "#/minimum: expected a number, got \"1\"",
        ),
        (
            fixed_json!({ "required": true }),
            "#/required: expected a list of names, got true",
        ),
        (
            fixed_json!({ "items": null }),
            "#/items: expected an object or a boolean, got null",
        ),
    ] {
        assert_eq!(refused(&schema), format!("schema: {expected}"));
        let mut warnings = Vec::new();
        let relaxed = prepare_relaxed(&schema, &mut warnings).expect("a schema");
        prepare_schema(&relaxed).expect("no restriction that is not enforced");
        let absent = schema
            .as_object()
            .is_some_and(|fields| fields.values().any(Json::is_null));
        let is_lenient = absent || schema.get("required").is_some();
        assert_eq!(
            warnings.len(),
            usize::from(!is_lenient),
            "{schema} {warnings:?}"
        );
    }
}

#[test]
fn keywords_that_are_not_enforced_keep_an_object_open() {
    let conditional = fixed_json!({
        "properties": { "a": {} },
        "if": { "required": ["a"] },
        "then": { "properties": { "b": {} } },
    });
    let mut warnings = Vec::new();
    let relaxed = prepare_relaxed(&conditional, &mut warnings).expect("a schema");
    assert_eq!(relaxed["additionalProperties"], true);
    assert_eq!(warnings, ["#/if is not enforced: if is not supported"]);
}

#[test]
fn alternatives_of_one_of_exclude_each_other() {
    for options in [
        fixed_json!([{ "type": "integer" }, { "type": "string" }]),
        fixed_json!([{ "const": 1 }, { "enum": [2, "a"] }]),
        fixed_json!([{ "type": "object", "properties": { "k": { "const": "a" } }, "required": ["k"] },
               { "type": "object", "properties": { "k": { "enum": ["b", "c"] } }, "required": ["k"] }]),
        fixed_json!([{ "type": "object", "properties": { "a": {} }, "required": ["a"] },
               { "type": "object", "properties": { "b": {} }, "required": ["b"] }]),
        fixed_json!([{ "type": "number", "maximum": 1 }, { "type": "number", "exclusiveMinimum": 1 }]),
        fixed_json!([{ "type": "string", "maxLength": 1 }, { "type": "string", "minLength": 2 }]),
        fixed_json!([{ "$ref": "#/$defs/a" }, { "allOf": [{ "$ref": "#/$defs/b" }] }]),
    ] {
        let schema = json!({ "oneOf": options, "$defs": {
            "a": { "type": "object", "properties": { "k": { "const": "a" } }, "required": ["k"] },
            "b": { "type": "object", "properties": { "k": { "const": "b" } }, "required": ["k"] },
        } });
        prepared(schema);
    }
    for options in [
        fixed_json!([{ "type": "integer" }, { "type": "number" }]),
        fixed_json!([{ "const": 1 }, { "const": 1.0 }]),
        // The second is valid for the first, which allows other properties.
        fixed_json!([{ "type": "object", "properties": { "a": {} } }, { "type": "object", "properties": { "a": {}, "b": {} }, "required": ["b"] }]),
        // A string is valid for both.
        fixed_json!([{ "properties": { "a": {} }, "required": ["a"] }, { "type": "string" }]),
        fixed_json!([{ "type": "string", "pattern": "a" }, { "type": "string", "pattern": "b" }]),
    ] {
        let expected = "schema: #/oneOf: alternatives 0 and 1 do not exclude each other";
        let schema = json!({ "oneOf": options });
        let message = refused(&schema);
        let reverse = "schema: #/oneOf: alternatives 1 and 0 do not exclude each other";
        assert!(
            message.starts_with(expected) || message.starts_with(reverse),
            "{message}"
        );
        let mut warnings = Vec::new();
        let relaxed = prepare_relaxed(&schema, &mut warnings).expect("a schema");
        assert_eq!((warnings.len(), relaxed.get("oneOf")), (1, None));
        assert!(relaxed["anyOf"].is_array());
    }
}

#[test]
fn bounds_are_numbers_that_grammars_have() {
    let max = i64::MAX;
    let near = -9_223_372_036_854_774_784_i64;
    for (schema, expected) in [
        (
            json!({ "type": "integer", "minimum": i64::MIN }),
            json!({ "type": "integer", "minimum": near }),
        ),
        (
            json!({ "type": "integer", "minimum": -max }),
            json!({ "type": "integer", "minimum": near }),
        ),
        (
            json!({ "type": "integer", "maximum": u64::MAX, "minimum": 0 }),
            json!({ "type": "integer", "minimum": 0, "maximum": max }),
        ),
        (
            json!({ "type": "integer", "exclusiveMaximum": max }),
            json!({ "type": "integer", "maximum": -near }),
        ),
        (
            fixed_json!({ "type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3.5 }),
            fixed_json!({ "type": "integer", "minimum": 1, "maximum": 3 }),
        ),
        (
            fixed_json!({ "type": "integer", "minimum": 5, "exclusiveMinimum": true }),
            fixed_json!({ "type": "integer", "minimum": 6 }),
        ),
        (
            json!({ "type": "integer", "minimum": 9_007_199_254_740_993_i64 }),
            json!({ "type": "integer", "minimum": 9_007_199_254_740_994_i64 }),
        ),
        (
            json!({ "type": "integer", "minimum": 1_000_000_000_000_000_000_i64 }),
            json!({ "type": "integer", "minimum": 1_000_000_000_000_000_000_i64, "maximum": max }),
        ),
        (
            json!({ "type": "number", "minimum": -1e300, "maximum": 1.5 }),
            json!({ "type": "number", "minimum": -999_999_999_999_999_872.0, "maximum": 1.5 }),
        ),
        (
            fixed_json!({ "type": "number", "minimum": 1, "exclusiveMinimum": true, "exclusiveMaximum": false }),
            fixed_json!({ "type": "number", "exclusiveMinimum": 1.0 }),
        ),
    ] {
        check(schema, expected);
    }
    for schema in [
        json!({ "type": "integer", "minimum": u64::MAX }),
        json!({ "type": "integer", "maximum": -1e19 }),
        json!({ "type": "number", "minimum": 1e18 }),
        json!({ "type": "number", "maximum": -1e300 }),
        json!({ "const": i64::MIN }),
        json!({ "const": 9_007_199_254_740_993_i64 }),
        json!({ "enum": [1, { "a": [max] }] }),
    ] {
        let message = refused(&schema);
        assert!(
            message.contains("out of range") || message.contains("constants beyond 2^53"),
            "{message}"
        );
    }
}
