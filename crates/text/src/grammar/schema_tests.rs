//! Tests of grammars of JSON schemas: white space, closed objects, references, bounds, byte order marks.

use super::tests::{byte_tokens, check, engine};
use super::*;
use serde_json::json;
use tabla_testkit::fixed_json;

/// Returns the white space that may follow a text.
fn white_space_after(compiled: &CompiledGrammar, text: &str) -> String {
    let mut matcher = compiled.matcher();
    for token in byte_tokens(text) {
        matcher
            .commit(token)
            .unwrap_or_else(|e| panic!("{text:?}: {e}"));
    }
    let mut mask = [0u32; 9];
    matcher.mask(&mut mask).expect("tokens");
    let is_allowed = |byte: &char| mask[*byte as usize / 32] & 1 << (*byte as usize % 32) != 0;
    [' ', '\n', '\t', '\r']
        .iter()
        .filter(|byte| is_allowed(byte))
        .collect()
}

#[test]
fn white_space_is_a_space_or_a_line_with_an_indentation() {
    let schema = fixed_json!({ "type": "object", "properties": { "a": { "type": "array" } } });
    for grammar in [
        Grammar::JsonObject,
        Grammar::JsonSchema(json!({})),
        Grammar::JsonSchema(json!(true)),
        Grammar::JsonSchema(schema.clone()),
        Grammar::JsonSchema(json!({ "$ref": "#/$defs/a", "$defs": { "a": schema } })),
    ] {
        let compiled = engine().compile(&grammar).expect("a grammar");
        for (text, expected) in [
            ("", ""),
            ("{", " \n"),
            ("{ ", ""),
            ("{\n", " \t"),
            ("{\n ", " "),
            ("{\n\t", "\t"),
            ("{\"a\"", " \n"),
            ("{\"a\":", " \n"),
            ("{\"a\": [", " \n"),
            ("{\"a\": []", " \n"),
            ("{}", ""),
        ] {
            assert_eq!(
                white_space_after(&compiled, text),
                expected,
                "{grammar:?} {text:?}"
            );
        }
        let lines = [("\n", ' ', 20), ("\n", '\t', 10)];
        for (line, indentation, max) in lines {
            let text = |count| format!("{{{line}{}", String::from(indentation).repeat(count));
            assert_ne!(white_space_after(&compiled, &text(max - 1)), "");
            assert_eq!(white_space_after(&compiled, &text(max)), "");
        }
    }
    check(
        &Grammar::JsonObject,
        &["{}", "{ \"a\": 1 }", "{\n  \"a\": [\n    1\n  ]\n}"],
        &["{  }", "{\n\n}", " {}", "{} ", "{ \n}"],
    );
}

#[test]
fn objects_are_closed() {
    let schema = fixed_json!({ "type": "object", "properties": { "name": { "type": "string" }, "legs": { "type": "integer" } },
        "required": ["name"] });
    check(
        &Grammar::JsonSchema(schema),
        &[r#"{"name":"Rex"}"#, r#"{"name": "Rex", "legs": 4}"#],
        &[
            r#"{"name":"Rex","tail":true}"#,
            "{}",
            r#"{"legs":4,"name":"Rex"}"#,
        ],
    );
    check(
        &Grammar::JsonSchema(json!({})),
        &[r#"{"a":1}"#],
        &["1", "[]"],
    );
    check(&Grammar::JsonSchema(json!(true)), &["1", "[]", "{}"], &[]);
    let parts = fixed_json!({
        "allOf": [{ "$ref": "#/$defs/a" }, { "properties": { "b": { "type": "null" } }, "required": ["b"] }],
        "$defs": { "a": { "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"] } },
    });
    check(
        &Grammar::JsonSchema(parts),
        &[r#"{"a":1,"b":null}"#],
        &[
            r#"{"a":1}"#,
            r#"{"a":1,"b":null,"c":1}"#,
            r#"{"a":"x","b":null}"#,
        ],
    );
    let alternatives = fixed_json!({
        "type": "object", "properties": { "k": { "type": "integer" } }, "required": ["k"],
        "oneOf": [{ "properties": { "a": {} }, "required": ["a"] }, { "properties": { "b": {} }, "required": ["b"] }],
    });
    check(
        &Grammar::JsonSchema(alternatives),
        &[r#"{"k":1,"a":2}"#, r#"{"k":1,"b":"x"}"#],
        &[r#"{"k":1}"#, r#"{"k":1,"a":2,"b":3}"#, r#"{"k":"x","a":1}"#],
    );
}

#[test]
fn references_by_identifier_are_enforced() {
    let schema = fixed_json!({
        "type": "object",
        "properties": {
            "id": { "$ref": "item.json" },
            "anchor": { "$ref": "#kind" },
            "tree": { "$ref": "tree.json" },
        },
        "$defs": {
            "item": { "$id": "item.json", "type": "integer" },
            "kind": { "$anchor": "kind", "enum": ["a"] },
            "tree": {
                "$id": "tree.json", "$dynamicAnchor": "node", "type": "object",
                "properties": { "next": { "$dynamicRef": "#node" } }, "additionalProperties": false,
            },
        },
    });
    check(
        &Grammar::JsonSchema(schema),
        &[r#"{"id":1,"anchor":"a","tree":{"next":{"next":{}}}}"#],
        &[
            r#"{"id":"x"}"#,
            r#"{"anchor":"b"}"#,
            r#"{"tree":{"next":1}}"#,
            r#"{"tree":{"other":1}}"#,
        ],
    );
}

#[test]
fn integers_at_the_limits_of_their_types() {
    let integer = |key: &str, bound: serde_json::Value| {
        Grammar::JsonSchema(json!({ "type": "integer", key: bound }))
    };
    let least = "-9223372036854774784";
    for minimum in [i64::MIN, i64::MIN + 1] {
        check(
            &integer("minimum", json!(minimum)),
            &[
                least,
                "-1",
                "0",
                "9223372036854775807",
                "18446744073709551615",
            ],
            &["-9223372036854775809", "-10000000000000000000", "-0.5"],
        );
    }
    check(
        &integer("maximum", json!(i64::MAX)),
        &["-99999999999999999999", "0", "9223372036854775807"],
        &["9223372036854775808", "10000000000000000000"],
    );
    check(
        &integer("maximum", json!(u64::MAX)),
        &["0", "9223372036854775807"],
        &["18446744073709551616"],
    );
    check(
        &integer("exclusiveMaximum", json!(i64::MIN + 2048)),
        &["-9223372036854774784"],
        &["-9223372036854773760", "0"],
    );
    check(
        &integer("minimum", json!(1_000_000_000_000_000_001_i64)),
        &["1000000000000000128", "9223372036854775807"],
        &["1000000000000000000", "999999999999999999"],
    );
    check(
        &Grammar::JsonSchema(json!({ "type": "number", "minimum": f64::MIN, "maximum": f64::MAX })),
        &["0.5", "-99999999999999999.5", "99999999999999999"],
        &[],
    );
}

#[test]
fn byte_order_marks_are_ignored() {
    let mark = '\u{feff}';
    for grammar in [
        Grammar::Gbnf(format!("{mark}root ::= \"a\"")),
        Grammar::Lark(format!("{mark}start: \"a\"")),
    ] {
        check(&grammar, &["a"], &["\u{feff}a", ""]);
    }
    let grammar = Grammar::from_schema_text("\u{feff}{\"const\": 1}").expect("a schema");
    check(&grammar, &["1"], &["2"]);
    let error = Grammar::from_schema_text("{").expect_err("no JSON");
    assert!(
        error
            .to_string()
            .starts_with("the schema is not valid JSON"),
        "{error}"
    );
}
