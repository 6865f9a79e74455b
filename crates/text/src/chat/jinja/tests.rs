//! Tests of the template language: thousands of small templates, compared with `transformers`.

use super::{Input, parse, render};
use serde_json::{Map, Value as Json};
use std::time::UNIX_EPOCH;

/// Renders a template with variables; the error is the message.
pub(super) fn rendered(source: &str, variables: &Map<String, Json>) -> Result<String, String> {
    let inputs: Vec<(&str, Input<'_>)> = variables
        .iter()
        .map(|(name, value)| (&**name, Input::Json(value)))
        .collect();
    let program = parse(source).map_err(|e| e.to_string())?;
    render(&program, &inputs, &str::to_string, UNIX_EPOCH).map_err(|e| e.to_string())
}

/// `tests/reference/template_expressions.py` wrote the cases.
#[test]
fn small_templates_render_like_transformers() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/templates/expressions.json"
    );
    let golden = std::fs::read_to_string(file).expect("the golden file");
    let golden: Json = serde_json::from_str(&golden).expect("JSON");
    let variables = golden["variables"].as_object().expect("variables");
    let cases = golden["cases"].as_array().expect("cases");
    let mut wrong = Vec::new();
    for case in cases {
        let source = case[0].as_str().expect("a template");
        let result = rendered(source, variables);
        let same = result.as_deref().ok() == case[1].as_str();
        let is_listed = case.get(2).is_some();
        if same == is_listed {
            wrong.push(format!("{source}\n  want {}\n  got  {result:?}", case[1]));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} templates are wrong:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
