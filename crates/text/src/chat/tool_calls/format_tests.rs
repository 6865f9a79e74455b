//! Tool calls in the formats of LFM2, DeepSeek, GLM and Nemotron.

use super::tests::{call, check, content, format, format_with, parts, reasoning};
use super::*;
use crate::{ChatTemplate, TemplateTokens};
use serde_json::{Value as Json, json};
use tabla_testkit::fixed_json;

/// Parts of the templates that identify a format.
pub(super) const LFM2: &str = "<|tool_call_start|> <think> </think>";
pub(super) const DEEPSEEK: &str = "<｜tool▁calls▁begin｜> <think> </think>";
pub(super) const DEEPSEEK_3: &str = "<｜tool▁calls▁begin｜> ```json";
pub(super) const GLM: &str = "<tool_call> <arg_key></arg_key><arg_value> <think> </think>";
pub(super) const GLM_4_5: &str = "<tool_call> <arg_key></arg_key>\n<arg_value>";
pub(super) const NEMOTRON: &str = "<TOOLCALL> <think> </think>";

/// A template, and two calls: of `f` with a string, and of `g` without arguments.
const OUTPUTS: &[(&str, &str)] = &[
    (
        LFM2,
        "<|tool_call_start|>[f(s=\"a (b], \\\"c\\\"\"), g()]<|tool_call_end|>",
    ),
    (
        LFM2,
        "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"s\": \"a (b], \\\"c\\\"\"}}, {\"name\": \"g\", \"arguments\": {}}]<|tool_call_end|>",
    ),
    (
        DEEPSEEK,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"s\": \"a (b], \\\"c\\\"\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        DEEPSEEK_3,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"s\": \"a (b], \\\"c\\\"\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    // The formats of DeepSeek accept each other.
    (
        DEEPSEEK,
        "<｜tool▁calls▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"s\": \"a (b], \\\"c\\\"\"}\n```\n<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>\n<｜tool▁calls▁end｜>\n",
    ),
    (
        DEEPSEEK_3,
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"s\": \"a (b], \\\"c\\\"\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
    ),
    (
        GLM,
        "<tool_call>f<arg_key>s</arg_key><arg_value>a (b], \"c\"</arg_value></tool_call><tool_call>g</tool_call>",
    ),
    (
        GLM_4_5,
        "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a (b], \"c\"</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>\n",
    ),
    (
        NEMOTRON,
        "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"s\": \"a (b], \\\"c\\\"\"}}, {\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>",
    ),
];

fn calls() -> [MessageDelta; 2] {
    [call("f", r#"{"s":"a (b], \"c\""}"#), call("g", "{}")]
}

#[test]
fn several_calls_follow_reasoning_and_content() {
    let [f, g] = calls();
    for (template, output) in OUTPUTS {
        check(template, output, &[f.clone(), g.clone()]);
        let expected = [content("Let me see."), f.clone(), g.clone()];
        check(template, &format!("Let me see.\n{output}"), &expected);
        let expected = [content("1 < 2"), f.clone(), g.clone(), content("So.")];
        check(template, &format!("1 < 2\n\n{output}\n\nSo."), &expected);
        if template.contains("</think>") {
            let output = format!("<think>\nHm, [f()].\n</think>\n\nYes.\n{output}");
            let expected = [
                reasoning("Hm, [f()]."),
                content("Yes."),
                f.clone(),
                g.clone(),
            ];
            check(template, &output, &expected);
        }
    }
}

/// The result does not depend on where the output is split.
#[test]
fn outputs_are_split_anywhere() {
    for (template, output) in OUTPUTS {
        let output = format!("Let me see.\n{output} So.");
        let format = format(template);
        let [f, g] = calls();
        let expected = [content("Let me see."), f, g, content("So.")];
        for (at, _) in output.char_indices() {
            let (first, second) = output.split_at(at);
            let mut parser = format.parser("");
            let mut message = AssistantMessage::default();
            let deltas = [parser.push(first), parser.push(second), parser.finish()];
            deltas
                .concat()
                .into_iter()
                .for_each(|delta| message.push(delta));
            assert_eq!(message.content, "Let me see.So.", "{first:?}");
            let found = message.tool_calls.into_iter().map(MessageDelta::ToolCall);
            assert!(found.eq(expected[1..3].iter().cloned()), "{first:?}");
        }
    }
}

/// Truncated calls are content. Nothing is lost.
#[test]
fn truncated_calls_are_content() {
    for (template, output) in OUTPUTS {
        let output = format!("1 < 2\n{output}");
        let format = format(template);
        let mut complete = 0;
        for (at, _) in output.char_indices() {
            let message = format.parse("", &output[..at]);
            let calls = message.tool_calls.len();
            assert!(calls >= complete && calls <= 2, "{:?}", &output[..at]);
            complete = calls;
            if calls == 0 {
                assert_eq!(message.content, output[..at]);
            }
            let streamed = parts(format.parser("").stream_arguments(), &output[..at], 1);
            for delta in streamed {
                match delta {
                    MessageDelta::Content(text) => assert!(output.contains(&text), "{text:?}"),
                    delta => assert!(matches!(delta, MessageDelta::ToolCall(_)), "{delta:?}"),
                }
            }
        }
    }
}

/// Outputs with one character too few or another one do not panic, and no call is lost.
#[test]
fn malformed_calls_are_content() {
    let mut counts = [0; 3];
    for (template, output) in OUTPUTS {
        let format = format(template);
        for (at, removed) in output.char_indices() {
            for other in ["", "x", "\"", "<", "\\", "é"] {
                let rest = &output[at + removed.len_utf8()..];
                let changed = [&output[..at], other, rest].concat();
                let message = format.parse("", &changed);
                let calls = message.tool_calls.len();
                counts[calls] += 1;
                match calls {
                    0 => assert_eq!(message.content, changed),
                    1 => assert_ne!(message.content, "", "{changed:?}"),
                    _ => {}
                }
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 500), "{counts:?}");
}

#[test]
fn text_after_a_marker_is_content() {
    for (template, output) in [
        (LFM2, "<|tool_call_start|>there is no call<|tool_call_end|>"),
        (LFM2, "<|tool_call_start|>[]<|tool_call_end|>"),
        (LFM2, "<|tool_call_start|>[f(1)]<|tool_call_end|>"),
        (LFM2, "<|tool_call_start|>[f(a=g())]<|tool_call_end|>"),
        (LFM2, "<|tool_call_start|>[f(a=1)(b=2)]<|tool_call_end|>"),
        (LFM2, "<|tool_call_start|>[f(a=nan)]<|tool_call_end|>"),
        (LFM2, "<|tool_call_start|>[f(a={1: 2})]<|tool_call_end|>"),
        (DEEPSEEK, "<｜tool▁calls▁begin｜>there is no call"),
        (DEEPSEEK, "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜> none"),
        (
            DEEPSEEK,
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\nno arguments",
        ),
        (DEEPSEEK, "<｜tool▁call▁begin｜>f<｜tool▁sep｜>[1]"),
        (GLM, "<tool_call>there is no call</tool_call>"),
        (GLM, "<tool_call></tool_call>"),
        (GLM, "<tool_call>f<b>s</b></tool_call>"),
        (GLM, "<tool_call>f<arg_key>s</arg_key>5</tool_call>"),
        (NEMOTRON, "<TOOLCALL>there is no call</TOOLCALL>"),
    ] {
        check(template, output, &[content(output)]);
    }
    let deep = format!("<|tool_call_start|>[f(a={})]", "[".repeat(9000));
    assert_eq!(format(LFM2).parse("", &deep).content, deep);
}

/// Returns the arguments of a call in Python.
fn python(arguments: &str) -> Json {
    let output = format!("<|tool_call_start|>[f({arguments})]<|tool_call_end|>");
    let message = format(LFM2).parse("", &output);
    assert_eq!(message.tool_calls.len(), 1, "{output:?}");
    serde_json::from_str(&message.tool_calls[0].arguments).expect("JSON")
}

#[test]
fn converts_python_literals() {
    assert_eq!(
        python(
            "a='x', b=\"y\", c=[1, -2.5, .5, 1e3, 0x1F, 1_000, [],], d={'k': None, \"t\": True, 'n': {}}, e=False"
        ),
        fixed_json!({
            "a": "x", "b": "y", "c": [1, -2.5, 0.5, 1000.0, 31, 1000, []],
            "d": { "k": null, "t": true, "n": {} }, "e": false,
        })
    );
    // As JSON
    assert_eq!(
        python("a=true, b=null, c={\"k\": [false, 1.5]}, n=18446744073709551615"),
        json!({ "a": true, "b": null, "c": { "k": [false, 1.5] }, "n": u64::MAX })
    );
    assert_eq!(
        python("\n  a = 1 ,\n  b = [ 'x' , 2 ] ,\n"),
        fixed_json!({ "a": 1, "b": ["x", 2] })
    );
    assert_eq!(
        python("some-key=1, other.key=2"),
        fixed_json!({ "some-key": 1, "other.key": 2 })
    );
    let bare = format(LFM2).parse("", "<|tool_call_start|>f(s='x')<|tool_call_end|>");
    assert_eq!(bare.tool_calls[0].arguments, r#"{"s":"x"}"#);
}

#[test]
fn converts_python_strings() {
    for (literal, expected) in [
        (
            r#"'\n\t\\ \' \" \x41 \u00e9 \U0001F642 \d'"#,
            "\n\t\\ ' \" A é 🙂 \\d",
        ),
        (r#""\ud83d\ude42 \ud83d \ud83dx""#, "🙂 \u{fffd} \u{fffd}x"),
        ("\"it's\"", "it's"),
        ("'say \"hi\"'", "say \"hi\""),
        ("'''a 'b' \"c\"\nd'''", "a 'b' \"c\"\nd"),
        ("\"\"\"a\"\"\"", "a"),
        ("''", ""),
        ("\"a\\\nb\"", "ab"),
        ("'two\nlines'", "two\nlines"),
        // Quotes without a backslash
        ("'O'Hare'", "O'Hare"),
        ("\"a \"b\" c\"", "a \"b\" c"),
        (r"'a\xzz'", "a\\xzz"),
    ] {
        assert_eq!(
            python(&format!("s={literal}")),
            json!({ "s": expected }),
            "{literal}"
        );
        let list = python(&format!("s=[{literal}, {{'k': {literal}}}]"));
        assert_eq!(
            list,
            json!({ "s": [expected, { "k": expected }] }),
            "{literal}"
        );
    }
}

/// Values of GLM are text or JSON, as the schema says.
#[test]
fn values_have_the_type_of_the_schema() {
    let parameters = fixed_json!({ "properties": {
        "s": { "type": "string" },
        "n": { "type": "integer" },
        "o": { "type": "object" },
    } });
    let format = format_with(GLM, &[json!({ "name": "f", "parameters": parameters })]);
    let value = |key: &str, value: &str| {
        let output = format!(
            "<tool_call>f\n<arg_key>{key}</arg_key> <arg_value>{value}</arg_value></tool_call>"
        );
        let call = format.parse("", &output).tool_calls.remove(0);
        let arguments: Json = serde_json::from_str(&call.arguments).expect("JSON");
        arguments[key].clone()
    };
    assert_eq!(value("s", "5"), json!("5"));
    assert_eq!(value("s", " a\n</tool_call>"), json!(" a\n</tool_call>"));
    assert_eq!(value("n", "5"), json!(5));
    assert_eq!(value("o", "{\"k\": [1]}"), json!({ "k": [1] }));
    assert_eq!(value("other", "true"), json!(true));
    assert_eq!(value("other", "text"), json!("text"));
    let object = "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a\"}}</tool_call>";
    assert_eq!(
        format.parse("", object).tool_calls[0].arguments,
        r#"{"s":"a"}"#
    );
}

/// Prompts end with `<think>`, or with `</think>` where the model does not reason.
#[test]
fn prompts_open_or_close_reasoning() {
    for (template, start, newline) in [
        (GLM, "<|assistant|>", ""),
        (DEEPSEEK, "<｜Assistant｜>", ""),
        (NEMOTRON, "<SPECIAL_11>Assistant\n", "\n"),
        (
            "<parameter= <think> </think>",
            "<|im_start|>assistant\n",
            "\n",
        ),
    ] {
        let format = format(template);
        let prompt = format!("{start}<think>{newline}");
        let message = format.parse(&prompt, "Hm.</think>Yes.");
        assert_eq!((&*message.reasoning, &*message.content), ("Hm.", "Yes."));
        for end in ["</think>", "<think></think>", ""] {
            let prompt = format!("{start}{end}");
            assert!(!format.starts_in_reasoning(&prompt), "{prompt}");
            let message = format.parse(&prompt, "Yes.");
            assert_eq!((&*message.reasoning, &*message.content), ("", "Yes."));
        }
    }
    let format = format(GLM);
    assert_eq!(format.content_prefix("<|assistant|><think>"), "</think>");
    assert_eq!(format.content_prefix("<|assistant|></think>"), "");
    // LFM2 opens the reasoning itself.
    check(
        LFM2,
        "<think>Hm.</think>Yes.",
        &[reasoning("Hm."), content("Yes.")],
    );
}

/// Arguments in JSON are returned as they arrive.
#[test]
fn arguments_arrive_in_pieces() {
    let text = |text: &str| MessageDelta::ToolCallArguments(text.into());
    for (template, open, close) in [
        (
            DEEPSEEK,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>",
            "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        (
            DEEPSEEK_3,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n",
            "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        (
            NEMOTRON,
            "<TOOLCALL>[{\"name\": \"f\", \"arguments\": ",
            "}]</TOOLCALL>",
        ),
    ] {
        let mut parser = format(template).parser("").stream_arguments();
        let start = MessageDelta::ToolCallStart {
            id: None,
            name: "f".into(),
        };
        assert_eq!(parser.push(open), [], "{template}");
        assert_eq!(parser.push("{"), [start, text("{")], "{template}");
        assert_eq!(parser.push("\"s\": \"a"), [text("\"s\":\"a")]);
        assert_eq!(parser.push("\"}"), [text("\"}"), MessageDelta::ToolCallEnd]);
        assert_eq!(parser.push(close), [], "{template}");
        assert_eq!(parser.finish(), [], "{template}");
        // A call without arguments is dropped.
        let mut parser = format(template).parser("").stream_arguments();
        assert_eq!([parser.push(open), parser.finish()].concat(), []);
    }
}

/// The templates of LFM2 do not contain the markers of calls; those of DeepSeek describe no tools.
#[test]
fn templates_support_tools() {
    let detect = |source: &str| {
        let source = format!("{{# {source} #}}");
        let template = ChatTemplate::new(&source, TemplateTokens::default()).expect("a template");
        ChatFormat::detect(&template, &[fixed_json!({ "name": "f" })])
    };
    for template in [
        "tools <|tool_list_start|>[",
        "<|im_start|> tools List of tools: [",
    ] {
        let format = detect(template);
        assert!(format.supports_tools(), "{template}");
        let output = "<|tool_call_start|>[f(a=1)]<|tool_call_end|>";
        assert_eq!(format.parse("", output).tool_calls.len(), 1, "{template}");
    }
    assert!(!detect("tools List of tools: [").supports_tools());
    let format = detect("<｜tool▁calls▁begin｜>");
    assert!(!format.supports_tools());
    let fallback = "<tool_call>{\"name\": \"f\"}</tool_call>";
    assert_eq!(format.parse("", fallback).tool_calls.len(), 1);
    let format = detect("tools <｜tool▁calls▁begin｜>");
    assert!(format.supports_tools());
    assert_eq!(format.parse("", OUTPUTS[2].1).tool_calls.len(), 2);
}
