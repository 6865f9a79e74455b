//! Tests of grammar conversion and matching with a small vocabulary.

use super::*;
use crate::{Tokenizer, Vocab};
use serde_json::json;
use std::sync::Arc;
use tabla_testkit::fixed_json;

/// One token for each byte, and others with their types, of which the first ends a generation.
pub(crate) fn byte_tokenizer(others: &[(&str, u32)]) -> Arc<Tokenizer> {
    let bytes: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
    let bytes = bytes.iter().map(|byte| (byte.as_str(), 6));
    let (tokens, types): (Vec<&str>, Vec<u32>) = bytes.chain(others.iter().copied()).unzip();
    let vocab = Vocab {
        model: "llama",
        scores: vec![0.0; tokens.len()],
        tokens,
        types,
        eos: Some(256),
        ..Vocab::default()
    };
    Arc::new(Tokenizer::new(&vocab).expect("a valid vocabulary"))
}

fn tokenizer() -> Arc<Tokenizer> {
    byte_tokenizer(&[
        ("</s>", 3),
        ("<call>", 3),
        ("{\"", 1),
        ("\":", 1),
        ("abc", 1),
        ("ab", 1),
        ("b", 1),
        ("true", 1),
    ])
}

pub(super) fn engine() -> GrammarEngine {
    GrammarEngine::new(&tokenizer()).expect("a vocabulary for grammars")
}

/// The byte tokens of a text.
pub(super) fn byte_tokens(text: &str) -> impl Iterator<Item = u32> {
    text.bytes().map(u32::from)
}

/// Whether a grammar accepts a text as a complete output.
fn accepts(compiled: &CompiledGrammar, text: &str) -> bool {
    let mut matcher = compiled.matcher();
    byte_tokens(text).all(|id| matcher.commit(id).is_ok())
        && matcher.may_end().expect("a valid state")
}

pub(super) fn check(grammar: &Grammar, good: &[&str], bad: &[&str]) {
    let compiled = engine().compile(grammar).expect("a grammar");
    for text in good {
        assert!(accepts(&compiled, text), "{grammar:?} rejects {text:?}");
    }
    for text in bad {
        assert!(!accepts(&compiled, text), "{grammar:?} accepts {text:?}");
    }
}

fn gbnf(text: &str, good: &[&str], bad: &[&str]) {
    check(&Grammar::Gbnf(text.into()), good, bad);
}

fn message(grammar: Grammar) -> String {
    let error = engine().compile(&grammar).expect_err("no grammar");
    error.message().to_string()
}

#[test]
fn gbnf_classes_and_literals() {
    gbnf(
        r#"root ::= [a-c_] [^x-z\n] . "\x41\u00e9\U0001F600\t\"\\" [\]\-\[] [a-]"#,
        &["aéß\u{41}é😀\t\"\\]-", "__\n\u{41}é😀\t\"\\[a"],
        &["daß\u{41}é😀\t\"\\]a", "ayßAé😀\t\"\\]a", "aé"],
    );
    gbnf("root ::= [^]", &["a", "\n", "é"], &["", "ab"]);
}

#[test]
fn gbnf_repetitions() {
    gbnf(
        r#"root ::= "a"* "b"+ "c"? "d"{2} "e"{1,} "f"{0,2} "g"{0}"#,
        &["bdde", "aabbcddeeff"],
        &["dde", "bde", "bddefff", "bddeg", "bccdde"],
    );
    gbnf(
        r#"root ::= ("ab" | "c")+ ("x" ("y")?)*"#,
        &["ab", "abcxyx"],
        &["a", "xy"],
    );
    gbnf(r#"root ::= "a" ?"#, &["", "a"], &["aa"]);
}

#[test]
fn gbnf_rules_and_comments() {
    gbnf(
        "# An expression.\nroot  ::= (expr \"=\" ws term \"\\n\")+\nexpr  ::= term ([-+*/] term)*\n\
         term  ::= ident | num | \"(\" ws expr \")\" ws # nested\n\
         ident ::= [a-z] [a-z0-9_]* ws\nnum   ::= [0-9]+ ws\nws    ::= [ \\t\\n]*\n",
        &["a=1\n", "(a +2)*x1 = 4 \n", "((((1))))=b\n"],
        &["a=1", "a==1\n", "(a=1\n"],
    );
    gbnf(
        "root ::= (\n  \"a\" # one\n  | \"b\"\n)\n  | \"c\"\r\n\n",
        &["a", "b", "c"],
        &["", "ab"],
    );
}

#[test]
fn gbnf_terminals_do_not_consume_what_follows() {
    gbnf(
        r#"root ::= [a-z]+ "b" ("(" root ")")?"#,
        &["ab", "abb(bb)", "xb(yb(zb))"],
        &["a", "ab(a)"],
    );
    gbnf(
        "root ::= list \"b\"\nlist ::= \"(\" list? \")\" name\nname ::= [a-z]* \"x\"?\n",
        &["()b", "()bbb", "(()ab)xb", "()xb"],
        &["()", "()a", "()xx"],
    );
}

#[test]
fn gbnf_grammar_of_json() {
    gbnf(
        r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#,
        &[
            "{}",
            r#"{"a": [1, -2.5e3, "x\u00e9\n", {"b":null}], "c" :true}"#,
            "{ \"a\":[]\n  }",
        ],
        &["", "[]", "{", r#"{"a":01}"#, r#"{"a":1,}"#, r#"{"a" 1}"#],
    );
}

#[test]
fn gbnf_tokens_by_name_and_id() {
    let compiled = engine().compile(&Grammar::Gbnf(r#"root ::= "a" <call> !<[257]>+"#.into()));
    let compiled = compiled.expect("a grammar");
    let mut matcher = compiled.matcher();
    let mut mask = vec![0; 9];
    for (token, next) in [(u32::from(b'a'), 257), (257, 0)] {
        matcher.commit(token).expect("allowed");
        matcher.mask(&mut mask).expect("tokens");
        assert_ne!(mask[next / 32] & 1 << (next % 32), 0, "after {token}");
    }
    assert_eq!(mask[257 / 32] & 1 << (257 % 32), 0);
    // Text does not match a token.
    assert!(!accepts(&compiled, "a<call>x"));
}

#[test]
fn gbnf_errors_have_line_numbers() {
    for (text, expected) in [
        ("", "missing rule `root`"),
        ("root ::= a", "line 1: undefined rule `a`"),
        (
            "root ::= \"a\"\nroot ::= \"b\"",
            "line 2: duplicate rule `root`",
        ),
        ("root ::= [z-a]", "line 1: empty range 'z'-'a'"),
        ("root ::= []", "line 1: empty character class"),
        ("\n\nroot ::= \"a", "line 3: unexpected end of the grammar"),
        (
            "root ::= \"a\n\"",
            "line 2: newline in a literal or character class",
        ),
        ("root ::= \"\\q\"", "line 1: unknown escape \\q"),
        (
            "root ::= \"\\ud800\"",
            "line 1: expected 4 hexadecimal digits of a character",
        ),
        (
            "root ::= \"a\"{2,1}",
            "line 1: the maximum of a repetition is below its minimum",
        ),
        (
            "root ::= \"a\"{x}",
            "line 1: expected a number from 0 to 1000000, got \"\"",
        ),
        ("root ::= (\"a\"", "line 1: expected `)`"),
        ("root = \"a\"", "line 1: expected `::=`"),
        ("root ::= \"a\" )", "line 1: unexpected character in a rule"),
        ("root ::= <a b>", "line 1: expected `>`"),
    ] {
        assert_eq!(message(Grammar::Gbnf(text.into())), expected, "{text:?}");
    }
    let nested = format!("root ::= {}\"a\"{}", "(".repeat(60_000), ")".repeat(60_000));
    assert!(message(Grammar::Gbnf(nested)).contains("exceed the limit of 65536"));
    let nested = format!("root ::= {}\"a\"{}", "(".repeat(9_000), ")".repeat(9_000));
    let expected = "line 1: groups are nested deeper than 24 levels";
    assert_eq!(message(Grammar::Gbnf(nested)), expected);
    let nested = format!("root ::= {}\"a\" root?{}", "(".repeat(24), ")".repeat(24));
    gbnf(&nested, &["a", "aaa"], &[""]);
}

#[test]
fn regexes_match_whole_text() {
    check(
        &Grammar::Regex(r"^[a-c]+/\d{2}$".into()),
        &["a/00", "cab/42"],
        &["", "a/0", "xa/00", "a/000"],
    );
    check(&Grammar::Regex(r"a\$".into()), &["a$"], &["a"]);
    check(&Grammar::Regex("a|é\n".into()), &["a", "é\n"], &["é"]);
    check(&Grammar::Regex(String::new()), &[""], &["a"]);
    assert_eq!(
        message(Grammar::Regex("a\\".into())),
        "regex: incomplete escape at the end"
    );
    assert_eq!(
        message(Grammar::Regex("(a".into())),
        r#"invalid regular expression "(a": unclosed group"#
    );
}

#[test]
fn messages_have_a_short_part_of_names_and_patterns() {
    // Words without quotes, of which a message could have any number.
    let words = "word ".repeat(999);
    let named = |schema: serde_json::Value| {
        let properties = serde_json::Map::from_iter([(words.clone(), schema)]);
        json!({ "properties": properties })
    };
    let pattern = |pattern: String| json!({ "pattern": pattern });
    for grammar in [
        Grammar::JsonSchema(named(json!({ "type": 3 }))),
        Grammar::JsonSchema(named(json!({ "$ref": "#/a" }))),
        Grammar::JsonSchema(pattern(format!("({words}"))),
        Grammar::JsonSchema(json!({ "patternProperties": { format!("({words}"): {} } })),
        Grammar::Regex(format!("({words}")),
        Grammar::Lark(format!("start: \"a\" %%% {words}")),
    ] {
        let message = message(grammar);
        assert!(message.matches("word").count() <= 40, "{message}");
        assert!(message.chars().count() <= 300, "{message}");
    }
    let error = check_schema_types(&named(json!({ "type": "text" })));
    let message = error.expect_err("an unknown type").message().to_string();
    assert!(message.matches("word").count() <= 40, "{message}");
    assert!(message.contains("unknown type \"text\""), "{message}");
}

#[test]
fn resolves_escaped_references() {
    let schema = serde_json::json!({
        "$ref": "#/definitions/a%3Cb%3E",
        "definitions": {
            "a<b>": { "type": "array", "items": { "$ref": "#/definitions/x~1y" }, "minItems": 1 },
            "x/y": { "enum": ["$ref", { "$ref": "#/nowhere" }] },
            "unused": { "$ref": "http://example.com" },
        },
    });
    check(
        &Grammar::JsonSchema(schema),
        &[r#"["$ref"]"#, r##"[{"$ref":"#/nowhere"}, "$ref"]"##],
        &["[]", r#"["a"]"#],
    );
    for (reference, expected) in [
        (
            "http://a/b",
            "schema: #/items/$ref: \"http://a/b\" is not within the schema; expected a reference to a place (#/$defs/name), an $anchor or an $id in the schema",
        ),
        ("#/a", "schema: #/items/$ref: \"#/a\" does not exist"),
    ] {
        let schema = serde_json::json!({ "items": { "$ref": reference } });
        assert_eq!(message(Grammar::JsonSchema(schema)), expected);
    }
}

#[test]
fn recursive_schemas() {
    let list = serde_json::json!({
        "type": "object",
        "properties": { "next": { "anyOf": [{ "$ref": "#" }, { "type": "null" }] } },
        "required": ["next"],
        "additionalProperties": false,
    });
    check(
        &Grammar::JsonSchema(list),
        &[r#"{"next":null}"#, r#"{"next":{"next": {"next":null}}}"#],
        &["{}", r#"{"next":{}}"#],
    );
    let cycle = serde_json::json!({ "$ref": "#" });
    let expected = "the grammar matches no text";
    assert_eq!(message(Grammar::JsonSchema(cycle)), expected);
}

#[test]
fn matcher_can_be_rolled_back_and_cloned() {
    let compiled = engine().compile(&Grammar::Lark("start: /ab?/".into()));
    let mut matcher = compiled.expect("a grammar").matcher();
    let (a, b, end) = (97, 98, 256);
    assert!(!matcher.may_end().expect("a valid state"));
    assert!(matcher.commit(end).is_err());
    matcher.commit(a).expect("a");
    let mut fork = matcher.clone();
    fork.commit(b).expect("b");
    assert!(fork.is_done() && !matcher.is_done());
    matcher.commit(end).expect("the end");
    assert!(matcher.is_done() && matcher.commit(b).is_err());
    matcher.rollback(1).expect("the end");
    matcher.commit(b).expect("b");
    matcher.commit(end).expect("the end");
    matcher.rollback(2).expect("both");
    assert!(!matcher.is_done() && matcher.rollback(2).is_err());
    matcher.commit(b).expect("b");
    matcher.commit(end).expect("the end");
    matcher.rollback(0).expect("nothing");
    assert!(matcher.is_done());
}

#[test]
fn forced_tokens_are_canonical() {
    let grammar = Grammar::Lark(r#"start: /[xy]/ "{\"abcabc\":true" /[z]/"#.into());
    let mut matcher = engine().compile(&grammar).expect("a grammar").matcher();
    let mut forced = vec![7];
    matcher.forced(&mut forced).expect("a valid state");
    assert!(forced.is_empty());
    matcher.commit(u32::from(b'x')).expect("x");
    matcher.forced(&mut forced).expect("a valid state");
    let tokenizer = tokenizer();
    let text: Vec<u8> = forced
        .iter()
        .flat_map(|id| tokenizer.token_bytes(*id).to_vec())
        .collect();
    assert_eq!(String::from_utf8_lossy(&text), "{\"abcabc\":truez");
    for token in forced.clone() {
        matcher.commit(token).expect("forced");
    }
    assert!(matcher.is_done());
    matcher.forced(&mut forced).expect("a valid state");
    assert!(forced.is_empty());
}

#[test]
fn mask_is_zero_past_vocabulary() {
    let mut matcher = engine()
        .compile(&Grammar::JsonObject)
        .expect("a grammar")
        .matcher();
    let error = matcher.mask(&mut [0; 8]).expect_err("too short");
    let expected = "a mask of 8 words is too short for a vocabulary of 264";
    assert_eq!(error.message(), expected);
    let mut mask = [u32::MAX; 11];
    matcher.mask(&mut mask).expect("tokens");
    // `{` and `{"`
    let mut expected = [0; 11];
    expected[3] = 1 << (123 - 96);
    expected[8] = 1 << 2;
    assert_eq!(mask, expected);
}

#[test]
fn compiled_grammars_are_cached() {
    let engine = engine();
    let compile = |text: &str| {
        engine
            .compile(&Grammar::Lark(text.into()))
            .expect("a grammar")
    };
    let first = compile("start: \"a\"");
    assert!(Arc::ptr_eq(&first, &compile("start: \"a\"")));
    for n in 0..40 {
        compile(&format!("start: \"{n}\""));
    }
    assert!(!Arc::ptr_eq(&first, &compile("start: \"a\"")));
}

/// Returns a schema without the options of llguidance.
fn without_options(mut schema: serde_json::Value) -> serde_json::Value {
    schema
        .as_object_mut()
        .map(|fields| fields.remove("x-guidance"));
    schema
}

/// Schemas as Zod, pydantic and MCP servers write them, and others that do not compile as they are.
#[test]
fn relaxed_schemas_compile() {
    let engine = engine();
    let zod = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {
        "email": { "type": "string", "format": "email", "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_]+)@b$" },
        "url": { "type": "string", "format": "uri" },
        "n": { "type": "integer", "exclusiveMinimum": 0, "maximum": 9_007_199_254_740_991u64 },
        "map": { "type": "object", "propertyNames": { "type": "string" }, "additionalProperties": {} },
    }, "required": ["email"], "additionalProperties": false });
    let pydantic = fixed_json!({ "$defs": { "Color": { "enum": ["red"], "title": "Color", "type": "string" } }, "properties": {
        "color": { "anyOf": [{ "$ref": "#/$defs/Color" }, { "type": "null" }], "default": null },
        "kind": { "const": "a", "default": "a", "title": "Kind", "type": "string" },
        "set": { "type": "array", "items": { "type": "string" }, "uniqueItems": true },
    }, "title": "Args", "type": "object" });
    for (schema, warnings) in [(zod, 1), (pydantic, 1)] {
        let relaxed = engine.relax(&schema).expect("a schema");
        assert_eq!(relaxed.warnings.len(), warnings, "{:?}", relaxed.warnings);
        let compiled = engine.compile(&Grammar::JsonSchema(relaxed.schema));
        compiled.expect("a grammar");
    }
    // The compiler rejects a part: only that part is not enforced.
    let schema = fixed_json!({ "type": "object", "properties": {
        "a": { "type": "string", "pattern": "\\b(" },
        "b": { "$ref": "#/$defs/b" },
        "c": { "type": "integer" },
        "d": { "allOf": [{ "type": "integer" }, { "type": "string" }] },
    }, "required": ["a", "b", "d"], "$defs": { "b": { "type": "integer", "minimum": 2, "maximum": 1 } } });
    let relaxed = engine.relax(&schema).expect("a schema");
    let expected = fixed_json!({ "type": "object", "properties": {
        "a": { "type": "string" },
        "b": { "$ref": "#/$defs/b" },
        "c": { "type": "integer" },
        "d": {},
    }, "required": ["a", "b", "d"], "additionalProperties": false, "$defs": { "b": {} } });
    assert_eq!(without_options(relaxed.schema), expected);
    assert_eq!(relaxed.warnings.len(), 3, "{:?}", relaxed.warnings);
    let unsatisfiable =
        fixed_json!({ "type": "object", "properties": { "a": false }, "required": ["a"] });
    let relaxed = engine.relax(&unsatisfiable).expect("a schema");
    engine
        .compile(&Grammar::JsonSchema(relaxed.schema))
        .expect("a grammar");
}

#[test]
fn parameters_of_relaxed_tools_are_objects() {
    let parameters = [
        json!(null),
        json!(true),
        json!({}),
        fixed_json!({ "type": ["object"] }),
        json!("x"),
    ];
    for parameters in parameters {
        let tool =
            json!({ "type": "function", "function": { "name": "f", "parameters": parameters } });
        let (tools, warnings) = engine().relax_tools(&[tool]).expect("tools");
        assert_eq!(
            without_options(tools[0]["function"]["parameters"].clone()),
            fixed_json!({ "type": "object" })
        );
        assert!(warnings.is_empty(), "{warnings:?}");
    }
    let parameters = fixed_json!({ "properties": { "a": { "not": {} } } });
    let (tools, warnings) = engine()
        .relax_tools(&[json!({ "name": "f", "parameters": parameters.clone() })])
        .expect("tools");
    let expected =
        fixed_json!({ "type": "object", "properties": { "a": {} }, "additionalProperties": false });
    assert_eq!(without_options(tools[0]["parameters"].clone()), expected);
    assert_eq!(
        warnings,
        ["tool \"f\": #/properties/a/not is not enforced: not is not supported"]
    );
    let tool = json!({ "name": "f", "strict": true, "parameters": parameters });
    let error = engine().relax_tools(&[tool]).expect_err("a strict tool");
    assert_eq!(
        error.message(),
        "tool \"f\": schema: #/properties/a/not: not is not supported"
    );
    let reference = fixed_json!({ "name": "f", "parameters": { "$ref": "#/a" } });
    let error = engine().relax_tools(&[reference]).expect_err("a reference");
    assert_eq!(
        error.message(),
        "tool \"f\": schema: #/$ref: \"#/a\" does not exist"
    );
}

#[test]
fn texts_are_committed_without_token_boundaries() {
    let compiled = engine()
        .compile(&Grammar::Regex("abcé".into()))
        .expect("a grammar");
    let mut matcher = compiled.matcher();
    for part in ["a".as_bytes(), b"bc\xC3", b"", b"\xA9"] {
        matcher.commit_text(part).expect("allowed");
    }
    assert!(matcher.is_done());
    let error = compiled
        .matcher()
        .commit_text(b"abx")
        .expect_err("an error");
    assert_eq!(error.kind(), tabla_core::error::ErrorKind::Argument);
}
