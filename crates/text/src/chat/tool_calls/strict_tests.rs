//! Grammars of tool calls enforce restrictions of values in every notation, or refuse them for strict tools.

use super::AllowedToolCalls;
use super::format_tests::{GLM, GLM_4_5, LFM2};
use super::grammar_tests::{Case, accepts};
use serde_json::{Value as Json, json};
use tabla_testkit::fixed_json;

const QWEN: &str = "<tool_call><parameter=";
const GEMMA: &str = "<|tool_call>call:";
const HERMES: &str = "<tool_call>";

/// Returns a call with one argument `x`, whose value is a text or JSON.
fn call(template: &str, value: &Json) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_string);
    match template {
        QWEN => format!(
            "<tool_call>\n<function=f>\n<parameter=x>\n{text}\n</parameter>\n</function>\n</tool_call>"
        ),
        GLM => format!("<tool_call>f<arg_key>x</arg_key><arg_value>{text}</arg_value></tool_call>"),
        GLM_4_5 => format!(
            "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>{text}</arg_value>\n</tool_call>"
        ),
        GEMMA if value.is_string() => {
            format!("<|tool_call>call:f{{x:<|\"|>{text}<|\"|>}}<tool_call|>")
        }
        GEMMA => format!("<|tool_call>call:f{{x:{text}}}<tool_call|>"),
        LFM2 => format!("<|tool_call_start|>[f(x={value})]<|tool_call_end|>"),
        _ => format!(
            "<tool_call>\n{{\"name\": \"f\", \"arguments\": {{\"x\": {value}}}}}\n</tool_call>"
        ),
    }
}

/// Schemas of an argument, values that are valid, and values that are not.
fn restrictions() -> Vec<(Json, Vec<Json>, Vec<Json>)> {
    let row = |schema, good: &[Json], bad: &[Json]| (schema, good.to_vec(), bad.to_vec());
    vec![
        row(
            fixed_json!({ "type": "string", "pattern": "^[A-Z]{2}-\\d+$" }),
            &[json!("AB-1"), json!("XY-2024")],
            &[json!("ab-1"), json!("AB-"), json!(" AB-1"), json!("")],
        ),
        row(
            fixed_json!({ "type": "string", "pattern": "a|^b$", "minLength": 1 }),
            &[json!("xax"), json!("b")],
            &[json!("xb"), json!("")],
        ),
        row(
            fixed_json!({ "type": "string", "format": "date" }),
            &[json!("2026-11-28")],
            &[
                json!("2026-13-28"),
                json!("28.11.2026"),
                json!("2026-02-29"),
            ],
        ),
        row(
            fixed_json!({ "type": "string", "minLength": 2, "maxLength": 3 }),
            &[json!("ab"), json!("abc"), json!("éü")],
            &[json!("a"), json!("abcd"), json!("")],
        ),
        row(
            fixed_json!({ "type": "string", "maxLength": 2 }),
            &[json!(""), json!("ab")],
            &[json!("abc")],
        ),
        row(
            fixed_json!({ "enum": ["km", "mile"] }),
            &[json!("km")],
            &[json!("feet"), json!("kmm")],
        ),
        row(
            fixed_json!({ "const": "only" }),
            &[json!("only")],
            &[json!("on"), json!("only ")],
        ),
        row(
            fixed_json!({ "type": "integer", "minimum": 3, "maximum": 12 }),
            &[json!(3), json!(12)],
            &[json!(2), json!(13), json!(4.5)],
        ),
        row(
            fixed_json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }),
            &[json!(0.5), json!(1)],
            &[json!(0), json!(1.5), json!(-1)],
        ),
        row(
            fixed_json!({ "anyOf": [{ "type": "string", "pattern": "^[a-z]+$" }, { "type": "null" }] }),
            &[json!("abc"), json!(null)],
            &[json!("ABC"), json!("a1")],
        ),
        row(
            fixed_json!({ "anyOf": [{ "$ref": "#/$defs/code" }, { "type": "array", "items": { "type": "integer" }, "minItems": 1 }] }),
            &[json!("x1"), json!([1, 2])],
            &[json!("1x"), json!([]), json!(["a"])],
        ),
        row(
            fixed_json!({ "type": "string", "allOf": [{ "minLength": 2 }, { "pattern": "^x" }] }),
            &[json!("xy")],
            &[json!("x"), json!("yx")],
        ),
    ]
}

#[test]
fn values_are_restricted_in_every_notation() {
    for template in [QWEN, GLM, GLM_4_5, GEMMA, LFM2, HERMES] {
        for (schema, good, bad) in restrictions() {
            let parameters = json!({
                "type": "object", "properties": { "x": schema }, "required": ["x"],
                "$defs": { "code": { "type": "string", "pattern": "^[a-z][0-9]$" } },
            });
            for is_strict in [false, true] {
                let case = Case::with_strict(template, &parameters, is_strict);
                let compiled = case.forced(AllowedToolCalls::default());
                for (values, expected) in [(&good, true), (&bad, false)] {
                    for value in values {
                        let output = call(template, value);
                        assert_eq!(accepts(&compiled, &output), expected, "{schema} {output:?}");
                        let arguments = json!({ "x": value });
                        if expected {
                            let message = case.format.parse("", &output);
                            let read: Json = serde_json::from_str(&message.tool_calls[0].arguments)
                                .expect("JSON");
                            assert_eq!(read, arguments, "{output:?}");
                        }
                    }
                }
            }
        }
    }
}

/// Text that the parser reads as another value than the string is not allowed as the string.
#[test]
fn texts_that_are_other_values_are_restricted_as_these() {
    let integer =
        fixed_json!({ "anyOf": [{ "type": "integer" }, { "type": "string", "minLength": 1 }] });
    let bounded =
        fixed_json!({ "anyOf": [{ "type": "integer", "minimum": 5 }, { "type": "string" }] });
    for (schema, good, bad) in [
        (
            &integer,
            &[
                ("12", json!(12)),
                ("abc", json!("abc")),
                ("12a", json!("12a")),
                ("[1", json!("[1")),
            ][..],
            &["", "1.5", "\"\""][..],
        ),
        (
            &bounded,
            &[("12", json!(12)), ("abc", json!("abc")), ("", json!(""))],
            &["4", "1.5", " 4 "],
        ),
    ] {
        let parameters =
            json!({ "type": "object", "properties": { "x": schema }, "required": ["x"] });
        let case = Case::with_strict(GLM, &parameters, true);
        let outputs: Vec<_> = good
            .iter()
            .map(|(text, value)| (call(GLM, &json!(text)), json!({ "x": value })))
            .collect();
        let outputs: Vec<_> = outputs
            .iter()
            .map(|(output, value)| (&**output, value.clone()))
            .collect();
        case.accepts(&outputs);
        let outputs: Vec<_> = bad.iter().map(|text| call(GLM, &json!(text))).collect();
        case.rejects(&outputs.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn strict_tools_refuse_what_a_notation_cannot_express() {
    let refused = |template: &str, parameters: Json| {
        let case = Case::with_strict(template, &parameters, true);
        let grammar = case
            .format
            .forced_tool_calls(AllowedToolCalls::default(), &case.tokenizer);
        grammar.expect_err("an error").message().to_string()
    };
    let property = |schema: Json| json!({ "type": "object", "properties": { "x": schema }, "required": ["x"] });
    let suffix = "the tool-call format of this model cannot express it in a strict tool";
    for (template, parameters, what) in [
        (
            QWEN,
            property(fixed_json!({ "type": "string", "pattern": "(^a|b)c" })),
            "x",
        ),
        (
            GLM,
            fixed_json!({ "type": "object", "anyOf": [{ "properties": { "a": {} } }, { "properties": { "b": {} } }] }),
            "anyOf",
        ),
        (
            QWEN,
            fixed_json!({ "type": "object", "properties": { "a": {} }, "additionalProperties": { "type": "integer" } }),
            "additionalProperties",
        ),
        (
            GEMMA,
            property(fixed_json!({ "type": "array", "prefixItems": [{ "type": "integer" }] })),
            "prefixItems",
        ),
        (GEMMA, property(fixed_json!({ "const": [1] })), "const"),
    ] {
        assert_eq!(
            refused(template, parameters),
            format!("f: {what}: {suffix}")
        );
    }
}
