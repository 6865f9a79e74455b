//! Grammars of tool calls: which outputs they accept, and that the parser of the format reads them.

use super::format_tests::{GLM, GLM_4_5};
use super::tests::format_with;
use super::*;
use crate::grammar::tests::byte_tokenizer;
use crate::{CompiledGrammar, Grammar, GrammarEngine, Tokenizer};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use tabla_testkit::fixed_json;

const CONTROLS: &[&str] = &[
    "</s>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "[TOOL_CALLS]",
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|channel>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
];

/// The parts of the template of gpt-oss that identify it.
const HARMONY: &str = "<|channel|>analysis <|channel|>commentary";

/// One token for each byte, and control tokens.
fn tokenizer() -> Arc<Tokenizer> {
    let controls: Vec<_> = CONTROLS.iter().map(|control| (*control, 3)).collect();
    byte_tokenizer(&controls)
}

/// Returns whether a grammar accepts an output.
pub(super) fn accepts(compiled: &CompiledGrammar, mut text: &str) -> bool {
    let mut matcher = compiled.matcher();
    while let Some(first) = text.bytes().next() {
        let control = CONTROLS
            .iter()
            .position(|control| text.starts_with(control));
        let (token, length) = match control {
            Some(at) => (
                256 + u32::try_from(at).expect("few tokens"),
                CONTROLS[at].len(),
            ),
            None => (u32::from(first), 1),
        };
        if matcher.commit(token).is_err() {
            return false;
        }
        text = text.get(length..).unwrap_or_else(|| {
            // The other bytes of a character.
            let (head, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
            let rest_bytes = &head.as_bytes()[1..];
            let all = rest_bytes
                .iter()
                .all(|byte| matcher.commit(u32::from(*byte)).is_ok());
            if all { rest } else { "\u{0}" }
        });
    }
    matcher.may_end().expect("a state")
}

pub(super) struct Case {
    pub(super) format: ChatFormat,
    engine: GrammarEngine,
    pub(super) tokenizer: Arc<Tokenizer>,
}

impl Case {
    pub(super) fn new(template: &str, parameters: &Json) -> Self {
        Self::with_strict(template, parameters, false)
    }

    #[expect(clippy::fn_params_excessive_bools, reason = "the value of a field")]
    pub(super) fn with_strict(template: &str, parameters: &Json, is_strict: bool) -> Self {
        let tools = ["f", "g"].map(|name| {
            json!({ "type": "function", "function": {
                "name": name, "parameters": parameters, "strict": is_strict,
            } })
        });
        let tokenizer = tokenizer();
        Self {
            format: format_with(template, &tools),
            engine: GrammarEngine::new(&tokenizer).expect("an engine"),
            tokenizer,
        }
    }

    pub(super) fn compile(&self, grammar: &Grammar) -> Arc<CompiledGrammar> {
        let compiled = self.engine.compile(grammar);
        compiled.unwrap_or_else(|e| panic!("{e}: {grammar:?}"))
    }

    pub(super) fn forced(&self, calls: AllowedToolCalls<'_>) -> Arc<CompiledGrammar> {
        let grammar = self.format.forced_tool_calls(calls, &self.tokenizer);
        self.compile(&grammar.expect("a grammar").expect("a format"))
    }

    /// Checks that the grammar accepts these outputs, and that they are calls with these arguments.
    pub(super) fn accepts(&self, outputs: &[(&str, Json)]) {
        let compiled = self.forced(AllowedToolCalls::default());
        for (output, expected) in outputs {
            assert!(accepts(&compiled, output), "{output:?}");
            let message = self.format.parse("", output);
            assert_eq!(message.tool_calls.len(), 1, "{output:?}");
            let found: Json = serde_json::from_str(&message.tool_calls[0].arguments).expect("JSON");
            assert_eq!(found, *expected, "{output:?}");
        }
    }

    pub(super) fn rejects(&self, outputs: &[&str]) {
        let compiled = self.forced(AllowedToolCalls::default());
        for output in outputs {
            assert!(!accepts(&compiled, output), "{output:?}");
        }
    }
}

pub(super) fn schema() -> Json {
    fixed_json!({
        "type": "object",
        "properties": {
            "text": { "type": "string" },
            "count": { "type": "integer", "minimum": 1 },
            "unit": { "$ref": "#/$defs/unit" },
            "flag": { "type": "boolean" },
            "maybe": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
            "list": { "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 2 },
            "tree": { "$ref": "#/$defs/tree" },
        },
        "required": ["text", "unit"],
        "$defs": {
            "unit": { "enum": ["km", "mile"] },
            "tree": { "type": "object", "properties": { "next": { "$ref": "#/$defs/tree" } }, "additionalProperties": false },
        },
    })
}

#[test]
fn parameters_are_text_or_json() {
    let case = Case::new("<tool_call><parameter=", &schema());
    let call = |name: &str, parameters: &[(&str, &str)]| {
        let parameters = parameters
            .iter()
            .map(|(key, value)| format!("<parameter={key}>\n{value}\n</parameter>\n"));
        let parameters: String = parameters.collect();
        format!("<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
    };
    let two = call("g", &[("text", "a\n<b> \"é\" </p>\n"), ("unit", "km")]);
    let all = [
        ("text", "5"),
        ("count", "12"),
        ("unit", "mile"),
        ("flag", "True"),
        ("maybe", "7"),
        ("list", "[\"a\", \"b\"]"),
        ("tree", "{\"next\": {}}"),
    ];
    let empty = call("f", &[("text", ""), ("unit", "km"), ("maybe", "null")]);
    case.accepts(&[
        (&two, fixed_json!({ "text": "a\n<b> \"é\" </p>\n", "unit": "km" })),
        (
            &call("f", &all),
            fixed_json!({ "text": "5", "count": 12, "unit": "mile", "flag": true, "maybe": "7", "list": ["a", "b"], "tree": { "next": {} } }),
        ),
        (&empty, fixed_json!({ "text": "", "unit": "km", "maybe": null })),
    ]);
    case.rejects(&[
        &call("h", &[("text", "a"), ("unit", "km")]),
        &call("f", &[("text", "a")]),
        &call("f", &[("unit", "km"), ("text", "a")]),
        &call("f", &[("text", "a"), ("unit", "feet")]),
        &call("f", &[("text", "a"), ("count", "0"), ("unit", "km")]),
        &call("f", &[("text", "a"), ("unit", "km"), ("flag", "yes")]),
        &call("f", &[("text", "a"), ("unit", "km"), ("list", "[]")]),
        &call("f", &[("text", "a"), ("unit", "km"), ("other", "1")]),
        &call("f", &[("text", "a</parameter>"), ("unit", "km")]),
        &format!("{two}\n{two}"),
    ]);
}

#[test]
fn strings_are_between_quote_tokens() {
    let case = Case::new("<|tool_call>call:", &schema());
    let call = |name: &str, body: &str| {
        let body = body.replace('\'', "<|\"|>");
        format!("<|tool_call>call:{name}{{{body}}}<tool_call|>")
    };
    case.accepts(&[
        (
            &call("f", "text:'a, \"b\" }',unit:'km'"),
            fixed_json!({ "text": "a, \"b\" }", "unit": "km" }),
        ),
        (
            &call("g", "count:12,flag:true,list:['a','b'],maybe:null,text:'',tree:{next:{next:{}}},unit:'mile'"),
            fixed_json!({ "text": "", "count": 12, "unit": "mile", "flag": true, "maybe": null, "list": ["a", "b"], "tree": { "next": { "next": {} } } }),
        ),
        (
            &call("f", "flag:false,text:'é',unit:'km'"),
            fixed_json!({ "text": "é", "unit": "km", "flag": false }),
        ),
    ]);
    case.rejects(&[
        &call("h", "text:'a',unit:'km'"),
        &call("f", "text:'a'"),
        &call("f", "text:a,unit:'km'"),
        &call("f", "text:'a',unit:'feet'"),
        &call("f", "count:0,text:'a',unit:'km'"),
        &call("f", "list:[],text:'a',unit:'km'"),
        &call("f", "list:['a','b','c'],text:'a',unit:'km'"),
        &call("f", ",text:'a',unit:'km'"),
        &call("f", "text:'a',unit:'km',"),
        &call("f", "text:'a',other:1,unit:'km'"),
    ]);
}

#[test]
fn any_arguments_are_allowed_without_properties() {
    for parameters in [
        json!(null),
        json!(true),
        json!({}),
        fixed_json!({ "type": "object" }),
    ] {
        let output = "<tool_call>\n<function=f>\n<parameter=a>\n[1]\n</parameter>\n</function>\n</tool_call>";
        let case = Case::new("<tool_call><parameter=", &parameters);
        case.accepts(&[(output, json!({ "a": [1] }))]);
        let case = Case::new("<|tool_call>call:", &parameters);
        let output = "<|tool_call>call:f{a:[1,{b:<|\"|>c<|\"|>}],d:null}<tool_call|>";
        case.accepts(&[
            (output, fixed_json!({ "a": [1, { "b": "c" }], "d": null })),
            ("<|tool_call>call:g{}<tool_call|>", json!({})),
        ]);
        let case = Case::new("<tool_call>", &parameters);
        let output = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
        case.accepts(&[(output, json!({ "a": 1 }))]);
    }
}

#[test]
fn undeclared_arguments_are_rejected() {
    let parameters =
        fixed_json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    for template in ["<tool_call>", "<function=x><parameter="] {
        let case = Case::new(template, &parameters);
        case.rejects(&[
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": 2}}\n</tool_call>",
            "<tool_call>\n<function=f>\n<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>",
        ]);
    }
    let case = Case::new("<tool_call>", &parameters);
    let output = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    case.accepts(&[(output, json!({ "a": 1 }))]);
}

#[test]
fn references_to_the_root_are_to_the_arguments() {
    let parameters = fixed_json!({
        "type": "object", "properties": { "a": { "$ref": "#" } }, "additionalProperties": false,
    });
    for (template, output) in [
        (
            "<tool_call>",
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": {\"a\": {}}}}\n</tool_call>",
        ),
        (
            "<tool_call><parameter=",
            "<tool_call>\n<function=f>\n<parameter=a>\n{\"a\": {}}\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            "<|tool_call>call:",
            "<|tool_call>call:f{a:{a:{}}}<tool_call|>",
        ),
    ] {
        let case = Case::new(template, &parameters);
        case.accepts(&[(output, fixed_json!({ "a": { "a": {} } }))]);
        case.rejects(&[&output.replacen("{}", "{\"name\":1}", 1)]);
    }
}

/// A template, a call, and the text between two calls; `None` if only one call is supported.
const CALLS: &[(&str, &str, Option<&str>)] = &[
    (GLM, "<tool_call>f</tool_call>", Some("")),
    (GLM_4_5, "<tool_call>f\n</tool_call>", Some("\n")),
    (
        "<tool_call>",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
        Some("\n"),
    ),
    (
        "<tool_call><parameter=",
        "<tool_call>\n<function=f>\n</function>\n</tool_call>",
        Some("\n"),
    ),
    (
        "<|tool_call>call:",
        "<|tool_call>call:f{}<tool_call|>",
        Some(""),
    ),
    ("[TOOL_CALLS][ARGS]", "[TOOL_CALLS]f[ARGS]{}", Some("")),
    ("<function=", "<function=f>{}</function>", Some("\n")),
    ("ipython", "{\"name\": \"f\", \"parameters\": {}}", None),
    (
        HARMONY,
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}",
        None,
    ),
];

#[test]
fn several_calls_are_allowed_if_requested() {
    let parameters =
        fixed_json!({ "type": "object", "properties": {}, "additionalProperties": false });
    for (template, call, between) in CALLS {
        let case = Case::new(template, &parameters);
        let single = case.forced(AllowedToolCalls::default());
        let parallel = case.forced(AllowedToolCalls::default().parallel(true));
        let three = [call; 3]
            .map(|call| call.to_string())
            .join(between.unwrap_or(""));
        assert!(
            accepts(&single, call) && accepts(&parallel, call),
            "{template}"
        );
        assert!(!accepts(&single, &three), "{template}");
        assert_eq!(accepts(&parallel, &three), between.is_some(), "{template}");
        if between.is_some() {
            let message = case.format.parse("", &three);
            assert_eq!(
                (message.tool_calls.len(), &*message.content),
                (3, ""),
                "{template}"
            );
        }
    }
    let case = Case::new("[TOOL_CALLS]", &parameters);
    let call = "{\"name\": \"f\", \"arguments\": {}}";
    let list = format!("[TOOL_CALLS][{call}, {call},{call}]");
    let parallel = AllowedToolCalls::default().parallel(true);
    assert!(accepts(&case.forced(parallel), &list));
    assert!(!accepts(&case.forced(AllowedToolCalls::default()), &list));
    assert_eq!(case.format.parse("", &list).tool_calls.len(), 3);
}

#[test]
fn grammars_apply_after_an_opening_marker() {
    let parameters =
        fixed_json!({ "type": "object", "properties": {}, "additionalProperties": false });
    for (template, call, between) in CALLS {
        let case = Case::new(template, &parameters);
        for parallel in [false, true] {
            let calls = AllowedToolCalls::default().names(&["f"]).parallel(parallel);
            let grammar = case.format.tool_call_grammar(calls, &case.tokenizer);
            let (triggers, grammar) = grammar.expect("a grammar").expect("a format");
            let compiled = case.compile(&grammar);
            let trigger = triggers.iter().find(|trigger| call.starts_with(&**trigger));
            let rest = trigger.map_or(*call, |trigger| &call[trigger.len()..]);
            assert!(accepts(&compiled, rest), "{template}: {rest:?}");
            let g = rest.replacen('f', "g", 1);
            assert!(!accepts(&compiled, &g), "{template}: {g:?}");
            let three = [rest, call, call].join(between.unwrap_or(""));
            let expected = parallel && between.is_some();
            assert_eq!(
                accepts(&compiled, &three),
                expected,
                "{template}: {three:?}"
            );
        }
    }
    // Line breaks around the body are optional.
    let case = Case::new("<tool_call>", &parameters);
    let grammar = case
        .format
        .tool_call_grammar(AllowedToolCalls::default(), &case.tokenizer);
    let (triggers, grammar) = grammar.expect("a grammar").expect("a format");
    assert_eq!(triggers, ["<tool_call>"]);
    let compiled = case.compile(&grammar);
    assert!(accepts(
        &compiled,
        "{\"name\": \"g\", \"arguments\": {}}</tool_call>"
    ));
}

#[test]
fn calls_have_the_headers_of_harmony() {
    let parameters =
        fixed_json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let case = Case::new(HARMONY, &parameters);
    let call = |start: &str, end: &str| {
        format!("{start}<|channel|>commentary to=functions.f{end}<|message|>{{\"a\":1}}")
    };
    let expected = || json!({ "a": 1 });
    case.accepts(&[
        (&call("", ""), expected()),
        (&call("", " json"), expected()),
        (
            &call("<|start|>assistant", " <|constrain|>json"),
            expected(),
        ),
        (&call("<|start|>assistant", "<|constrain|>json"), expected()),
    ]);
    case.rejects(&[
        &call("<|start|>user", ""),
        &call("", "<|start|>"),
        &call("", "").replace("commentary", "final"),
        &call("", "").replace("functions.f", "functions.h"),
        &call("", "").replace('1', "\"x\""),
    ]);
    // The role may have the recipient.
    let grammar = case
        .format
        .tool_call_grammar(AllowedToolCalls::default(), &case.tokenizer);
    let (triggers, grammar) = grammar.expect("a grammar").expect("a format");
    assert!(triggers.contains(&"<|start|>assistant to=functions.".to_string()));
    let compiled = case.compile(&grammar);
    for header in ["<|channel|>commentary json", "<|channel|>analysis", ""] {
        let rest = format!("g{header}<|message|>{{\"a\":1}}");
        assert!(accepts(&compiled, &rest), "{rest:?}");
    }
    assert!(!accepts(&compiled, "g<|channel|>final<|message|>{\"a\":1}"));
}

/// Control tokens have text if they are a part of a marker.
#[test]
fn markers_have_text() {
    let tokenizer = tokenizer();
    let text = |template: &str, control: &str| {
        let format = format_with(template, &[]);
        let id = tokenizer.special_id(control).expect("a control token");
        format.token_text(&tokenizer, id, "a").into_owned()
    };
    for control in ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"] {
        assert_eq!(text(HARMONY, control), format!("a{control}"));
    }
    assert_eq!(text(HARMONY, "</s>"), "a");
    assert_eq!(text("<channel|>", "<|channel>"), "a<|channel>");
    assert_eq!(text("<think></think>", "<|channel>"), "a");
}

#[test]
fn content_follows_its_header() {
    let answer = |template: &str| {
        let case = Case::new(template, &json!({}));
        let start = case.format.content_start(&case.tokenizer);
        case.compile(&Grammar::Lark(format!("start: {start} /[0-9]+/")))
    };
    let harmony = answer(HARMONY);
    assert!(accepts(&harmony, "<|channel|>final<|message|>5"));
    assert!(accepts(
        &harmony,
        "<|start|>assistant<|channel|>final<|message|>5"
    ));
    assert!(!accepts(&harmony, "5"));
    assert!(accepts(&answer("<think></think>"), "5"));
}

#[test]
fn rejects_unknown_tools_and_names() {
    let case = Case::new("<tool_call>", &json!({}));
    let calls = AllowedToolCalls::default().names(&["f", "x"]);
    let error = case.format.forced_tool_calls(calls, &case.tokenizer);
    assert_eq!(error.expect_err("an error").message(), "unknown tool \"x\"");
    let tools = [fixed_json!({ "name": "a>b" })];
    let format = format_with("<parameter=", &tools);
    let error = format.forced_tool_calls(AllowedToolCalls::default(), &case.tokenizer);
    assert!(
        error
            .expect_err("an error")
            .message()
            .contains("cannot express the name")
    );
    let required = fixed_json!({ "properties": { "a>b": {} }, "required": ["a>b"] });
    let format = format_with(
        "<parameter=",
        &[json!({ "name": "f", "parameters": required })],
    );
    let error = format.forced_tool_calls(AllowedToolCalls::default(), &case.tokenizer);
    assert!(
        error
            .expect_err("an error")
            .message()
            .contains("property name \"a>b\"")
    );
}
