//! Tests of structured output and speculation.

use super::tabla;
use serde_json::Value;

#[test]
fn output_follows_schema_and_grammar() {
    let schema = r#"{"type":"object","properties":{"pet":{"enum":["dog","cat"]},"age":{"type":"integer","maximum":20}},"required":["pet","age"],"additionalProperties":false}"#;
    let answer = tabla(&["-q", "-n", "100", "--seed", "3", "-j", schema]);
    let value: Value = serde_json::from_str(answer.text().trim_start_matches("Once upon a time"))
        .unwrap_or_else(|e| panic!("{}: {e}", answer.text()));
    assert!(value["pet"] == "dog" || value["pet"] == "cat", "{value}");
    assert!(
        value["age"].as_i64().is_some_and(|age| age <= 20),
        "{value}"
    );
    let grammar = r#"root ::= "yes" | "no""#;
    let answer = tabla(&["-q", "--grammar", grammar]);
    let word = answer.text().trim();
    assert!(["yes", "no"].contains(&word), "{word}");
}

#[test]
fn rejects_invalid_grammars() {
    let invalid = tabla(&["-q", "--grammar", "root ::= ("]);
    assert_eq!(invalid.code, Some(1), "{}", invalid.stderr);
    let invalid = tabla(&["-q", "-j", "{"]);
    assert_eq!(invalid.code, Some(1), "{}", invalid.stderr);
    assert!(
        invalid.stderr.contains("the schema is not valid JSON"),
        "{}",
        invalid.stderr
    );
    let invalid = tabla(&["-q", "--json-schema-file", "no such file"]);
    assert!(
        invalid.stderr.contains("cannot read no such file"),
        "{}",
        invalid.stderr
    );
    let both = tabla(&["--grammar", "x", "-j", "{}"]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
}

#[test]
fn speculation_does_not_change_the_output() {
    let plain = tabla(&["-q", "-n", "60", "--seed", "1"]);
    let lookup = tabla(&["-q", "-n", "60", "--seed", "1", "--lookup"]);
    assert_eq!(lookup.text(), plain.text());
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/story.gguf");
    let draft = tabla(&["-q", "-n", "60", "--seed", "1", "--model-draft", model]);
    assert_eq!(draft.text(), plain.text());
}
