//! Chat templates by the grammar of Jinja.

use super::super::memory::peak;
use super::choices::Choices;
use super::errors::check;
use super::text::text;
use serde_json::{Map, json};
use std::time::SystemTime;
use tabla::text::{ChatTemplate, Conversation, TemplateTokens};

/// Nesting of a generated template.
const DEPTH: usize = 5;
/// Maximum memory: twice the limit of a rendering, which counts the content of values, and the program.
const MEMORY_MAX: usize = 48 << 20;

const NAMES: [&str; 12] = [
    "messages",
    "message",
    "x",
    "y",
    "loop",
    "bos_token",
    "add_generation_prompt",
    "tools",
    "ns",
    "namespace",
    "self",
    "undefined_name",
];
const ATTRIBUTES: [&str; 14] = [
    "role",
    "content",
    "x",
    "index",
    "first",
    "last",
    "items",
    "append",
    "upper",
    "split",
    "get",
    "previtem",
    "cycle",
    "__class__",
];
const FILTERS: [&str; 40] = [
    "abs",
    "batch",
    "capitalize",
    "center",
    "count",
    "default",
    "dictsort",
    "escape",
    "first",
    "float",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "map",
    "max",
    "min",
    "pprint",
    "reject",
    "replace",
    "reverse",
    "round",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "urlencode",
    "wordwrap",
];
const TESTS: [&str; 12] = [
    "defined",
    "none",
    "string",
    "mapping",
    "iterable",
    "sequence",
    "even",
    "divisibleby(2)",
    "eq(1)",
    "in([1])",
    "true",
    "sameas(x)",
];
const FUNCTIONS: [&str; 8] = [
    "range",
    "namespace",
    "dict",
    "cycler",
    "joiner",
    "raise_exception",
    "strftime_now",
    "lipsum",
];
const METHODS: [&str; 16] = [
    "split",
    "strip",
    "replace",
    "format",
    "join",
    "find",
    "startswith",
    "center",
    "items",
    "get",
    "keys",
    "count",
    "translate",
    "zfill",
    "splitlines",
    "index",
];
const BINARY: [&str; 20] = [
    "+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in",
    "not in", "is", "is not",
];

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut source = String::new();
    if choices.rarely(16) {
        source = String::from_utf8_lossy(choices.rest()).into_owned();
    } else {
        body(&mut source, &mut choices, DEPTH);
    }
    let tokens = TemplateTokens {
        bos: Some("<s>"),
        eos: Some("</s>"),
    };
    let template = match ChatTemplate::new(&source, tokens) {
        Ok(template) => template,
        Err(error) => return check(&error),
    };
    let messages = [
        json!({ "role": "system", "content": "Be brief." }),
        json!({ "role": "user", "content": text(&mut choices, 6) }),
        json!({ "role": "assistant", "content": [{ "type": "text", "text": "1 < 2" }], "x": -1.5 }),
    ];
    let mut variables = Map::new();
    variables.insert("x".to_string(), json!([3, 1, "b"]));
    variables.insert("y".to_string(), json!({ "k": "v" }));
    let conversation = Conversation::new(&messages)
        .variables(Some(&variables))
        .now(SystemTime::UNIX_EPOCH);
    let (first, peak) = peak(|| template.render(&conversation));
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory: {source}");
    match (first, template.render(&conversation)) {
        (Ok(first), Ok(second)) => assert_eq!(first, second, "{source}"),
        (Err(first), Err(second)) => {
            check(&first);
            assert_eq!(first.kind(), second.kind(), "{source}");
        }
        (first, second) => panic!("{first:?} and {second:?}: {source}"),
    }
}

/// Writes statements.
fn body(out: &mut String, choices: &mut Choices<'_>, depth: usize) {
    for _ in 0..choices.below(5) {
        statement(out, choices, depth);
    }
}

/// Writes a block with a body and an end.
fn block(out: &mut String, name: &str, head: &str, choices: &mut Choices<'_>, depth: usize) {
    *out += &format!("{{% {name} {head} %}}");
    body(out, choices, depth - 1);
    if choices.rarely(4) {
        *out += "{% else %}";
        body(out, choices, depth - 1);
    }
    *out += &format!("{{%- end{name} %}}");
}

fn statement(out: &mut String, choices: &mut Choices<'_>, depth: usize) {
    let name = *choices.pick(&NAMES);
    let expression = expression(choices, depth);
    match choices.below(14) {
        0 => *out += &text(choices, 4).replace('{', ""),
        1 if depth > 0 => block(out, "if", &expression, choices, depth),
        2 if depth > 0 => {
            let targets = choices.pick(&["message", "x", "x, y", "(x, y)"]);
            let end = choices.pick(&["", " if x", " recursive", " if loop"]);
            block(
                out,
                "for",
                &format!("{targets} in {expression}{end}"),
                choices,
                depth,
            );
        }
        3 => *out += &format!("{{% set {name} = {expression} %}}"),
        4 => *out += &format!("{{% set ns.x = {expression} %}}"),
        5 if depth > 0 => block(
            out,
            "macro",
            &format!("m(x, y={expression})"),
            choices,
            depth,
        ),
        6 if depth > 0 => block(out, "call", &format!("m({expression})"), choices, depth),
        7 if depth > 0 => {
            let filter = *choices.pick(&FILTERS);
            block(out, "filter", filter, choices, depth);
        }
        8 if depth > 0 => block(out, "set", name, choices, depth),
        9 => {
            *out += choices.pick::<&str>(&[
                "{% break %}",
                "{% continue %}",
                "{# x #}",
                "{% raw %}{{{% endraw %}",
                "{%",
            ]);
        }
        10 => *out += "{% set ns = namespace(x=1) %}",
        11 if depth > 0 => block(out, "generation", "", choices, depth),
        _ => *out += &format!("{{{{- {expression} -}}}}"),
    }
}

fn arguments(choices: &mut Choices<'_>, depth: usize) -> String {
    let argument = |choices: &mut Choices<'_>| match choices.below(6) {
        0 => format!(
            "{}={}",
            choices.pick(&["x", "attribute", "indent", "reverse", "default"]),
            expression(choices, depth)
        ),
        1 => format!("*{}", expression(choices, depth)),
        _ => expression(choices, depth),
    };
    let all: Vec<_> = (0..choices.below(3)).map(|_| argument(choices)).collect();
    all.join(", ")
}

fn expression(choices: &mut Choices<'_>, depth: usize) -> String {
    let Some(inner) = depth.checked_sub(1) else {
        return literal(choices);
    };
    let mut next = || expression(choices, inner);
    let (a, b) = (next(), if inner > 2 { String::from("x") } else { next() });
    match choices.below(18) {
        0 | 1 => literal(choices),
        2 => (*choices.pick(&NAMES)).to_string(),
        3 => format!("{a}.{}", choices.pick(&ATTRIBUTES)),
        4 => format!("{a}[{b}]"),
        5 => format!("{a}[{b}:{}]", choices.pick(&["", "1", "-1", "::-1", ":0"])),
        6 => format!("{a} | {}", choices.pick(&FILTERS)),
        7 => format!(
            "{a} | {}({})",
            choices.pick(&FILTERS),
            arguments(choices, inner)
        ),
        8 => format!(
            "{a} is {}{}",
            choices.pick(&["", "not "]),
            choices.pick(&TESTS)
        ),
        9 => format!("{a} {} {b}", choices.pick(&BINARY)),
        10 => format!("{}({a})", choices.pick(&["-", "+", "not "])),
        11 => format!("({a} if {b} else {})", literal(choices)),
        12 => format!("[{a}, {b}]"),
        13 => format!("{{{a}: {b}}}"),
        14 => format!("({a}, {b})"),
        15 => format!(
            "{}({})",
            choices.pick(&FUNCTIONS),
            arguments(choices, inner)
        ),
        16 => format!(
            "({a}).{}({})",
            choices.pick(&METHODS),
            arguments(choices, inner)
        ),
        _ => format!("m({a})"),
    }
}

fn literal(choices: &mut Choices<'_>) -> String {
    let literals = [
        "1",
        "0",
        "-1",
        "'a'",
        "\"b\\n\"",
        "none",
        "true",
        "false",
        "1.5",
        "1e308",
        "9223372036854775807",
        "100000000",
        "messages",
        "x",
        "''",
        "[]",
        "{}",
        "'%s %d'",
        "'{} {x}'",
        "'\\u0130\u{df}'",
    ];
    (*choices.pick(&literals)).to_string()
}
