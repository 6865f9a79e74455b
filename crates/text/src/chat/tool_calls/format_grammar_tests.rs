//! Grammars of tool calls in the formats of LFM2, DeepSeek, GLM and Nemotron.

use super::AllowedToolCalls;
use super::format_tests::{DEEPSEEK, DEEPSEEK_3, GLM, GLM_4_5, LFM2, NEMOTRON};
use super::grammar_tests::{Case, accepts, schema};
use serde_json::json;
use tabla_testkit::fixed_json;

/// A template, the texts before, between and after calls, and the texts before the name and after the
/// arguments `{}`.
const LISTS: &[(&str, [&str; 3], [&str; 3])] = &[
    (
        LFM2,
        ["<|tool_call_start|>[", ", ", "]<|tool_call_end|>"],
        ["", "(", ")"],
    ),
    (
        DEEPSEEK,
        ["<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜>"],
        [
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>{}",
            "<｜tool▁call▁end｜>",
        ],
    ),
    (
        DEEPSEEK_3,
        ["<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>"],
        [
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            "\n```json\n{}\n```",
            "<｜tool▁call▁end｜>",
        ],
    ),
    (
        NEMOTRON,
        ["<TOOLCALL>[", ", ", "]</TOOLCALL>"],
        ["{\"name\": \"", "\", \"arguments\": {}", "}"],
    ),
];

#[test]
fn several_calls_are_allowed_if_requested() {
    let parameters =
        fixed_json!({ "type": "object", "properties": {}, "additionalProperties": false });
    for (template, [before, between, after], [open, arguments, close]) in LISTS {
        let case = Case::new(template, &parameters);
        let call = |name: &str| format!("{open}{name}{arguments}{close}");
        let one = format!("{before}{}{after}", call("f"));
        let three = [call("f"), call("g"), call("f")].join(between);
        let three = format!("{before}{three}{after}");
        assert_eq!(case.format.parse("", &three).tool_calls.len(), 3, "{three}");
        for parallel in [false, true] {
            let calls = AllowedToolCalls::default().parallel(parallel);
            let forced = case.forced(calls);
            assert!(accepts(&forced, &one), "{one}");
            assert_eq!(accepts(&forced, &three), parallel, "{three}");
            assert!(!accepts(&forced, &one.replacen('f', "h", 3)), "{one}");
            let cut = one.strip_suffix(after).expect("an end");
            assert!(!accepts(&forced, cut), "{cut}");
            let lazy = case.format.tool_call_grammar(calls, &case.tokenizer);
            let (triggers, grammar) = lazy.expect("a grammar").expect("a format");
            let lazy = case.compile(&grammar);
            let mut rests = triggers
                .iter()
                .filter_map(|trigger| one.strip_prefix(&**trigger));
            assert!(rests.all(|rest| accepts(&lazy, rest)), "{one}");
            let rest = three.strip_prefix(&*triggers[0]).expect("a marker");
            assert_eq!(accepts(&lazy, rest), parallel, "{three}");
            // The model may begin without the marker of the list.
            if let Some((_, rest)) = one.split_once(triggers.last().expect("a marker")) {
                assert!(accepts(&lazy, rest), "{rest}");
            }
        }
    }
}

#[test]
fn python_calls_match_the_schema() {
    let case = Case::new(LFM2, &schema());
    let call = |body: &str| format!("<|tool_call_start|>[{body}]<|tool_call_end|>");
    case.accepts(&[
        (
            &call("f(text=\"a, \\\"b\\\" )\", unit=\"km\")"),
            fixed_json!({ "text": "a, \"b\" )", "unit": "km" }),
        ),
        (
            &call("g(text=\"\", count=12, unit=\"mile\", flag=True, maybe=None, list=[\"a\", \"b\"], tree={\"next\": {\"next\": {}}})"),
            fixed_json!({ "text": "", "count": 12, "unit": "mile", "flag": true, "maybe": null, "list": ["a", "b"], "tree": { "next": { "next": {} } } }),
        ),
        (
            &call("f(text=\"é\", unit=\"km\", maybe=\"x\")"),
            fixed_json!({ "text": "é", "unit": "km", "maybe": "x" }),
        ),
    ]);
    case.rejects(&[
        &call("h(text=\"a\", unit=\"km\")"),
        &call("f(text=\"a\")"),
        &call("f(text=a, unit=\"km\")"),
        &call("f(\"a\", unit=\"km\")"),
        &call("f(text=\"a\", unit=\"feet\")"),
        &call("f(text=\"a\", count=0, unit=\"km\")"),
        &call("f(text=\"a\", unit=\"km\", list=[])"),
        &call("f(text=\"a\", unit=\"km\", other=1)"),
        &call("f(text=\"a\", unit=\"km\",)"),
        &call("f(text=\"a\", unit=\"km\", flag=1)"),
        &call(""),
    ]);
    let case = Case::new(LFM2, &fixed_json!({ "type": "object" }));
    case.accepts(&[
        (&call("f()"), json!({})),
        (
            &call("f(a=1, b_2={\"c\": [null]})"),
            fixed_json!({ "a": 1, "b_2": { "c": [null] } }),
        ),
    ]);
    let root = fixed_json!({
        "type": "object", "properties": { "a": { "$ref": "#" } }, "additionalProperties": false,
    });
    let case = Case::new(LFM2, &root);
    case.accepts(&[(&call("f(a={\"a\": {}})"), fixed_json!({ "a": { "a": {} } }))]);
    case.rejects(&[&call("f(a={\"b\": {}})")]);
}

#[test]
fn values_between_tags_match_the_schema() {
    for (template, line) in [(GLM, ""), (GLM_4_5, "\n")] {
        let case = Case::new(template, &schema());
        let call = |name: &str, arguments: &[(&str, &str)]| {
            let arguments = arguments.iter().map(|(key, value)| {
                format!("<arg_key>{key}</arg_key>{line}<arg_value>{value}</arg_value>{line}")
            });
            let arguments: String = arguments.collect();
            format!("<tool_call>{name}{line}{arguments}</tool_call>")
        };
        let all = [
            ("text", "5\n<b>"),
            ("count", "12"),
            ("unit", "mile"),
            ("flag", "true"),
            ("maybe", "7"),
            ("list", "[\"a\", \"b\"]"),
            ("tree", "{\"next\": {}}"),
        ];
        case.accepts(&[
            (
                &call("g", &[("text", ""), ("unit", "km")]),
                fixed_json!({ "text": "", "unit": "km" }),
            ),
            (
                &call("f", &all),
                fixed_json!({ "text": "5\n<b>", "count": 12, "unit": "mile", "flag": true, "maybe": "7", "list": ["a", "b"], "tree": { "next": {} } }),
            ),
        ]);
        case.rejects(&[
            &call("h", &[("text", "a"), ("unit", "km")]),
            &call("f", &[("text", "a")]),
            &call("f", &[("text", "a"), ("unit", "feet")]),
            &call("f", &[("text", "a"), ("count", "0"), ("unit", "km")]),
            &call("f", &[("text", "a"), ("unit", "km"), ("other", "1")]),
            &call("f", &[("text", "a</arg_value>"), ("unit", "km")]),
        ]);
        let case = Case::new(template, &fixed_json!({ "type": "object" }));
        case.accepts(&[(&call("f", &[("a", "[1]")]), json!({ "a": [1] }))]);
    }
}
