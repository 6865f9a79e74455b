//! Formats of calls, piece by piece.

use super::*;
use crate::{ChatTemplate, Ends};
use serde_json::json;

fn format(template: &str) -> AnswerFormat {
    let template = format!("{{# {template} #}}");
    let template = ChatTemplate::new(&template, Ends::default()).expect("a template");
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": {
        "type": "object", "properties": { "s": { "type": "string" } },
    } } });
    AnswerFormat::of(&template, &[tool])
}

fn call(name: &str, arguments: &str) -> Part {
    Part::Call(Call {
        id: None,
        name: name.into(),
        arguments: arguments.into(),
    })
}

fn content(text: &str) -> Part {
    Part::Content(text.into())
}

fn reasoning(text: &str) -> Part {
    Part::Reasoning(text.into())
}

/// The parts of an answer, those of a kind that follow each other as one.
fn parts(format: &AnswerFormat, answer: &str, step: usize) -> Vec<Part> {
    let mut stream = format.stream("");
    let mut all: Vec<Part> = Vec::new();
    let letters: Vec<char> = answer.chars().collect();
    let pieces = letters
        .chunks(step)
        .map(|piece| piece.iter().collect::<String>());
    let mut found: Vec<Part> = pieces.flat_map(|piece| stream.push(&piece)).collect();
    found.extend(stream.finish());
    for part in found {
        match (all.last_mut(), part) {
            (Some(Part::Content(text)), Part::Content(more))
            | (Some(Part::Reasoning(text)), Part::Reasoning(more)) => text.push_str(&more),
            (_, part) => all.push(part),
        }
    }
    all
}

/// The same parts come out however the answer is cut.
fn check(template: &str, answer: &str, wanted: &[Part]) {
    let format = format(template);
    for step in [1, 2, 3, 7, 1000] {
        assert_eq!(parts(&format, answer, step), wanted, "{answer:?} by {step}");
    }
}

#[test]
fn objects_between_tags() {
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
    let cut = "x <tool_call>{\"name\": \"f\", \"argu";
    check(hermes, cut, &[content(cut)]);
}

#[test]
fn thoughts_are_split_off() {
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
    let answer = format.parse("<|im_start|>assistant\n<think>\n", "Hm.\n</think>\n\nYes.");
    assert_eq!((&*answer.reasoning, &*answer.content), ("Hm.", "Yes."));
}

#[test]
fn an_answer_that_is_an_object() {
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
fn calls_of_mistral() {
    let call_with_id = Part::Call(Call {
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
fn parameters_have_the_types_of_their_schema() {
    check(
        "<tool_call><parameter=",
        "<tool_call>\n<function=f>\n<parameter=s>\n5\n</parameter>\n<parameter=n>\n5\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=t>\ntwo\n lines\n</parameter>\n</function>\n</tool_call>",
        &[call("f", r#"{"s":"5","n":5,"b":true,"t":"two\n lines"}"#)],
    );
}

#[test]
fn texts_between_tokens() {
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
fn names_in_tags_and_lists_behind_a_token() {
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
fn without_tools_nothing_is_a_call() {
    let template = ChatTemplate::new("<tool_call>", Ends::default()).expect("a template");
    let format = AnswerFormat::of(&template, &[]);
    let text = "<tool_call>{\"name\": \"f\"}</tool_call>";
    assert_eq!(format.parse("", text).content, text);
    assert!(format.markers().next().is_none());
}
