//! Streaming parsing of tool calls and reasoning.

use super::*;
use crate::{ChatTemplate, TemplateTokens};
use serde_json::json;
use tabla_testkit::fixed_json;

/// Returns the format of a template with this text.
pub(super) fn format_with(template: &str, tools: &[serde_json::Value]) -> ChatFormat {
    let template = format!("{{# tools {template} #}}");
    let template = ChatTemplate::new(&template, TemplateTokens::default()).expect("a template");
    ChatFormat::detect(&template, tools)
}

pub(super) fn format(template: &str) -> ChatFormat {
    let tool = fixed_json!({ "type": "function", "function": { "name": "f", "parameters": {
        "type": "object", "properties": { "s": { "type": "string" } },
    } } });
    format_with(template, &[tool])
}

pub(super) fn call(name: &str, arguments: &str) -> MessageDelta {
    MessageDelta::ToolCall(ToolCall {
        id: None,
        name: name.into(),
        arguments: arguments.into(),
    })
}

pub(super) fn content(text: &str) -> MessageDelta {
    MessageDelta::Content(text.into())
}

pub(super) fn reasoning(text: &str) -> MessageDelta {
    MessageDelta::Reasoning(text.into())
}

/// Parses output in pieces of `step` characters. Concatenates adjacent deltas of the same type, and the parts
/// of a call.
pub(super) fn parts(mut parser: ChatParser, output: &str, step: usize) -> Vec<MessageDelta> {
    let mut merged: Vec<MessageDelta> = Vec::new();
    let chars: Vec<char> = output.chars().collect();
    let pieces = chars
        .chunks(step)
        .map(|piece| piece.iter().collect::<String>());
    let mut deltas: Vec<MessageDelta> = pieces.flat_map(|piece| parser.push(&piece)).collect();
    deltas.extend(parser.finish());
    for delta in deltas {
        match (merged.last_mut(), delta) {
            (Some(MessageDelta::Content(text)), MessageDelta::Content(more))
            | (Some(MessageDelta::Reasoning(text)), MessageDelta::Reasoning(more)) => {
                text.push_str(&more);
            }
            (Some(MessageDelta::ToolCall(call)), MessageDelta::ToolCallArguments(more)) => {
                call.arguments.push_str(&more);
            }
            (_, MessageDelta::ToolCallStart { id, name }) => {
                let arguments = String::new();
                merged.push(MessageDelta::ToolCall(ToolCall {
                    id,
                    name,
                    arguments,
                }));
            }
            (_, MessageDelta::ToolCallEnd) => {}
            (_, delta) => merged.push(delta),
        }
    }
    merged
}

/// Checks the result for pieces of several sizes.
pub(super) fn check(template: &str, output: &str, expected: &[MessageDelta]) {
    let format = format(template);
    for step in [1, 2, 3, 7, 1000] {
        let found = parts(format.parser(""), output, step);
        assert_eq!(found, expected, "{output:?} by {step}");
        let streamed = parts(format.parser("").stream_arguments(), output, step);
        let same = streamed.iter().zip(expected).all(|parts| match parts {
            // An id may be after the arguments.
            (MessageDelta::ToolCall(a), MessageDelta::ToolCall(b)) => {
                (&a.name, &a.arguments) == (&b.name, &b.arguments)
            }
            (a, b) => a == b,
        });
        let is_same = same && streamed.len() == expected.len();
        assert!(is_same, "{output:?} by {step}: {streamed:?}");
    }
}

/// Arguments are returned as they arrive, and calls that begin do not need an end.
#[test]
fn arguments_arrive_in_pieces() {
    let text = |text: &str| MessageDelta::ToolCallArguments(text.into());
    for (template, pieces) in [
        (
            "<tool_call>",
            [
                "<tool_call>\n{\"name\": \"f\", \"arguments\": {",
                "\"s\": \"a b}\\\"",
                "\"}",
                "}\n</tool_call>",
            ],
        ),
        (
            "[TOOL_CALLS]",
            [
                "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {",
                "\"s\": \"a b}\\\"",
                "\"}",
                "}]",
            ],
        ),
        (
            "[ARGS]",
            ["[TOOL_CALLS]f[ARGS]{", "\"s\": \"a b}\\\"", "\"}", ""],
        ),
        (
            "ipython",
            [
                "{\"name\": \"f\", \"parameters\": {",
                "\"s\": \"a b}\\\"",
                "\"}",
                "}",
            ],
        ),
    ] {
        let mut parser = format(template).parser("").stream_arguments();
        let start = MessageDelta::ToolCallStart {
            id: None,
            name: "f".into(),
        };
        assert_eq!(parser.push(pieces[0]), [start, text("{")], "{template}");
        assert_eq!(
            parser.push(pieces[1]),
            [text("\"s\":\"a b}\\\"")],
            "{template}"
        );
        assert_eq!(
            parser.push(pieces[2]),
            [text("\"}"), MessageDelta::ToolCallEnd],
            "{template}"
        );
        assert_eq!(parser.push(pieces[3]), [], "{template}");
        assert_eq!(parser.finish(), [], "{template}");
        let mut parser = format(template).parser("").stream_arguments();
        let cut = [
            parser.push(pieces[0]),
            parser.push(pieces[1]),
            parser.finish(),
        ]
        .concat();
        assert!(
            !cut.contains(&MessageDelta::ToolCallEnd) && cut.len() == 3,
            "{cut:?}"
        );
    }
}

#[test]
fn parses_objects_between_tags() {
    let hermes = "<tool_call>";
    check(
        hermes,
        "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call>\"}}\n</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>\n",
        &[
            content("Let me see."),
            call("f", r#"{"s":"</tool_call>"}"#),
            call("g", "{}"),
        ],
    );
    check(hermes, "a < b <tool> \n", &[content("a < b <tool> \n")]);
    check(
        hermes,
        "<tool_call>\nno call",
        &[content("<tool_call>\nno call")],
    );
    // A call that was cut before its arguments is no content of a stream, which has no malformed calls.
    let cut = "x <tool_call>{\"name\": \"f\", \"argu";
    let format = format(hermes);
    assert_eq!(parts(format.parser(""), cut, 3), [content(cut)]);
    let streamed = parts(format.parser("").stream_arguments(), cut, 3);
    assert_eq!(streamed, [content("x")]);
}

/// Text after a marker that cannot begin a call is content, also in a stream.
#[test]
fn text_after_a_marker_is_content() {
    for template in ["<tool_call>", "[ARGS]"] {
        let marker = if template == "[ARGS]" {
            "[TOOL_CALLS]"
        } else {
            template
        };
        let output = format!("{marker}there is no call");
        check(template, &output, &[content(&output)]);
    }
}

/// Output that begins like a call without a marker is one only if there is such a tool.
#[test]
fn bare_objects_with_other_names_are_content() {
    let answer = "{\"name\": \"John\", \"age\": 5}";
    check("ipython", answer, &[content(answer)]);
    let call_like = "{\"name\": \"g\", \"parameters\": {\"s\": \"a\"}}";
    check("ipython", call_like, &[content(call_like)]);
}

#[test]
fn separates_reasoning() {
    let qwen = "<think> </think> <tool_call>";
    check(
        qwen,
        "<think>\nHm, <tool_call>?\n</think>\n\nYes.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
        &[
            reasoning("Hm, <tool_call>?"),
            content("Yes."),
            call("f", "{}"),
        ],
    );
    check(qwen, "So <think>", &[content("So <think>")]);
    check(qwen, "<think>on and on\n", &[reasoning("on and on")]);
    let format = format(qwen);
    let message = format.parse("<|im_start|>assistant\n<think>\n", "Hm.\n</think>\n\nYes.");
    assert_eq!((&*message.reasoning, &*message.content), ("Hm.", "Yes."));
}

#[test]
fn parses_bare_object() {
    let llama = "ipython";
    check(
        llama,
        "\n{\"name\": \"f\", \"parameters\": {\"s\": \"}\"}}",
        &[call("f", r#"{"s":"}"}"#)],
    );
    check(
        llama,
        "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}",
        &[call("f", "{}")],
    );
    check(
        llama,
        "{\"a\": 1} is JSON",
        &[content("{\"a\": 1} is JSON")],
    );
    check(llama, "It is {}.", &[content("It is {}.")]);
}

#[test]
fn parses_mistral_calls() {
    let call_with_id = MessageDelta::ToolCall(ToolCall {
        id: Some("abcdefghi".into()),
        name: "f".into(),
        arguments: r#"{"s":"[ARGS]"}"#.into(),
    });
    check(
        "[TOOL_CALLS][ARGS]",
        "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"s\": \"[ARGS]\"}[TOOL_CALLS]g[ARGS]{}",
        &[call_with_id.clone(), call("g", "{}")],
    );
    check(
        "[TOOL_CALLS]",
        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"[ARGS]\"}, \"id\": \"abcdefghi\"}, {\"name\": \"g\", \"arguments\": {}}]",
        &[call_with_id, call("g", "{}")],
    );
}

#[test]
fn calls_follow_reasoning_and_content() {
    let expected = [
        reasoning("Hm, 1 < 2."),
        content("Let me see."),
        call("f", r#"{"s":"a"}"#),
        call("g", "{}"),
    ];
    for (template, output) in [
        // Ministral 3
        (
            "[/THINK] [TOOL_CALLS] [ARGS]",
            "[THINK]Hm, 1 < 2.[/THINK]Let me see.[TOOL_CALLS]f[ARGS]{\"s\": \"a\"}[TOOL_CALLS]g[ARGS]{}",
        ),
        // Gemma 4
        (
            "<channel|> <|tool_call>call:",
            "<|channel>thought\nHm, 1 < 2.\n<channel|>Let me see.<|tool_call>call:f{s:<|\"|>a<|\"|>}<tool_call|><|tool_call>call:g{}<tool_call|>",
        ),
        // Qwen 3
        (
            "</think> <tool_call>",
            "<think>\nHm, 1 < 2.\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
        ),
    ] {
        check(template, output, &expected);
    }
}

#[test]
fn converts_parameters_to_schema_types() {
    check(
        "<tool_call><parameter=",
        "<tool_call>\n<function=f>\n<parameter=s>\n5\n</parameter>\n<parameter=n>\n5\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=t>\ntwo\n lines\n</parameter>\n</function>\n</tool_call>",
        &[call("f", r#"{"s":"5","n":5,"b":true,"t":"two\n lines"}"#)],
    );
}

/// The prompts of Qwen 3.5 open the reasoning.
#[test]
fn output_may_begin_within_reasoning() {
    let format = format("<think></think><tool_call><parameter=");
    let prompt = "<|im_start|>assistant\n<think>\n";
    let one =
        "<tool_call>\n<function=f>\n<parameter=s>\na\n\nb\n</parameter>\n</function>\n</tool_call>";
    let other = "<tool_call>\n<function=g>\n</function>\n</tool_call>";
    let cut = "<tool_call>\n<function=f>\n<parameter=s>\na";
    let output = format!("Hm, <tool_call>\n</think>\n\nSo.\n\n{one}\n{other}\n{cut}");
    for step in [1, 2, 5, 1000] {
        let found = parts(format.parser(prompt), &output, step);
        let expected = [
            reasoning("Hm, <tool_call>"),
            content("So."),
            call("f", r#"{"s":"a\n\nb"}"#),
            call("g", "{}"),
            content(cut),
        ];
        assert_eq!(found, expected, "by {step}");
        let answer = parts(
            format.parser(&format!("{prompt}\n</think>\n\n")),
            "So.",
            step,
        );
        assert_eq!(answer, [content("So.")], "by {step}");
        let cut = parts(format.parser(prompt), "Hm.\n</thi", step);
        assert_eq!(cut, [reasoning("Hm.\n</thi")], "by {step}");
    }
    assert_eq!(format.content_prefix(prompt), "\n</think>\n\n");
    assert_eq!(format.content_prefix("assistant\n"), "");
}

#[test]
fn parses_strings_between_quote_tokens() {
    check(
        "<|tool_call>call:",
        "<|tool_call>call:f{a:[1,<|\"|>x,}<|\"|>],o:{k:null,t:true},s:<|\"|>a:b<|\"|>}<tool_call|>",
        &[call(
            "f",
            r#"{"a":[1,"x,}"],"o":{"k":null,"t":true},"s":"a:b"}"#,
        )],
    );
}

#[test]
fn parses_names_in_tags_and_lists_after_token() {
    check(
        "<function=",
        "Well. <function=f>{\"s\": \"x\"}</function>",
        &[content("Well."), call("f", r#"{"s":"x"}"#)],
    );
    check(
        "<|tool_call|>",
        "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]",
        &[call("f", "{}")],
    );
}

#[test]
fn parses_no_calls_without_tools() {
    let template = ChatTemplate::new("<tool_call>", TemplateTokens::default()).expect("a template");
    let format = ChatFormat::detect(&template, &[]);
    let text = "<tool_call>{\"name\": \"f\"}</tool_call>";
    assert_eq!(format.parse("", text).content, text);
    assert!(format.markers().next().is_none());
}

#[test]
fn templates_without_tools_have_a_fallback() {
    let template = ChatTemplate::new("<think></think>", TemplateTokens::default());
    let template = template.expect("a template");
    let tools = [fixed_json!({ "name": "f" })];
    let format = ChatFormat::detect(&template, &tools);
    assert!(!format.supports_tools());
    let output = "Well.\n<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>";
    let message = format.parse("", output);
    assert_eq!((&*message.content, message.tool_calls.len()), ("Well.", 1));
    let format = ChatFormat::detect(&template, &[]);
    assert_eq!(format.parse("", output).content, output);
}

#[test]
fn returns_reasoning_markers() {
    let format = format("<think> </think>");
    assert_eq!(format.reasoning_markers(), Some(("<think>", "</think>")));
    assert!(format.starts_in_reasoning("assistant\n<think>\n"));
    assert!(!format.starts_in_reasoning("assistant\n<think>\n\n</think>\n\n"));
    assert_eq!(self::format("plain").reasoning_markers(), None);
}

#[test]
fn values_have_a_type_that_the_schema_allows() {
    let parameters = fixed_json!({ "properties": {
        "text": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
        "word": { "$ref": "#/$defs/word" },
        "number": { "type": "integer" },
    }, "$defs": { "word": { "enum": ["1", "2"] } } });
    let format = format_with(
        "<parameter=",
        &[json!({ "name": "f", "parameters": parameters })],
    );
    let value = |key: &str, value: &str| {
        let output = format!(
            "<tool_call><function=f><parameter={key}>\n{value}\n</parameter></function></tool_call>"
        );
        let call = format.parse("", &output).tool_calls.remove(0);
        let arguments: serde_json::Value = serde_json::from_str(&call.arguments).expect("JSON");
        arguments[key].clone()
    };
    assert_eq!(value("text", "5"), json!("5"));
    assert_eq!(value("text", "null"), json!(null));
    assert_eq!(value("word", "1"), json!("1"));
    assert_eq!(value("number", "1"), json!(1));
    assert_eq!(value("number", "one"), json!("one"));
    assert_eq!(value("unknown", "1"), json!(1));
}
