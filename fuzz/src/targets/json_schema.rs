//! JSON schemas. Every output that the grammar of a schema allows must be valid by another implementation.

use super::choices::Choices;
use super::grammar_walk::walk;
use super::json_edits;
use super::naive_schema::{PATTERNS, is_valid};
use super::text::text;
use serde_json::{Map, Value, json};
use tabla::text::Grammar;

const NAMES: [&str; 4] = ["a", "b", "", "\u{e9}\""];
const FORMATS: [&str; 6] = ["date", "time", "uuid", "ipv4", "email", "unknown"];

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut document = schema(&mut choices, 3);
    if choices.rarely(2) && document.is_object() {
        document["$defs"] = json!({ "x": schema(&mut choices, 2), "y": schema(&mut choices, 2) });
    }
    if choices.rarely(6) {
        let most = choices.below(24);
        json_edits::edit(&mut document, &mut Choices::new(choices.bytes(most)));
    }
    let grammar = Grammar::JsonSchema(document.clone());
    let Some(output) = walk(&grammar, &mut choices) else {
        return;
    };
    let output = String::from_utf8(output).expect("JSON is UTF-8");
    let value: Value = match serde_json::from_str(&output) {
        // The number of digits is not limited, so a number may exceed f64.
        Err(error) if error.to_string().starts_with("number out of range") => return,
        parsed => parsed.unwrap_or_else(|error| panic!("{output} of {document}: {error}")),
    };
    assert!(
        is_valid(&document, &value, &document),
        "{output} is not valid by {document}"
    );
}

fn schema(choices: &mut Choices<'_>, depth: usize) -> Value {
    match choices.below(14) {
        0 | 1 if depth > 0 => object(choices, depth),
        2 if depth > 0 => array(choices, depth),
        3 => string(choices),
        4 | 5 => number(choices),
        6 => json!({ "type": choices.pick(&["boolean", "null", "string", "integer"]) }),
        7 => json!({ "enum": ["a", 1, null, text(choices, 3)] }),
        8 => {
            json!({ "const": choices.pick(&[json!("a"), json!(1), json!({"a": [1]}), json!(null)]) })
        }
        9 if depth > 0 => {
            let list: Vec<_> = (0..1 + choices.below(3))
                .map(|_| schema(choices, depth - 1))
                .collect();
            json!({ *choices.pick(&["anyOf", "oneOf", "allOf"]): list })
        }
        10 => json!({ "$ref": choices.pick(&["#/$defs/x", "#/$defs/y", "#", "#/$defs/z"]) }),
        11 => json!({ "type": ["integer", "null"] }),
        12 => json!(true),
        _ => json!({ "type": "boolean" }),
    }
}

fn object(choices: &mut Choices<'_>, depth: usize) -> Value {
    let mut properties = Map::new();
    for _ in 0..choices.below(4) {
        properties.insert(
            (*choices.pick(&NAMES)).to_string(),
            schema(choices, depth - 1),
        );
    }
    let required: Vec<_> = properties
        .keys()
        .filter(|_| choices.rarely(2))
        .cloned()
        .collect();
    let mut object = json!({ "type": "object", "properties": properties, "required": required });
    match choices.below(6) {
        0 => object["additionalProperties"] = json!(false),
        1 => object["additionalProperties"] = schema(choices, depth - 1),
        2 => object["maxProperties"] = json!(choices.below(3)),
        3 => {
            object["patternProperties"] =
                json!({ choices.pick(&PATTERNS).0: schema(choices, depth - 1) });
        }
        _ => {}
    }
    object
}

fn array(choices: &mut Choices<'_>, depth: usize) -> Value {
    let mut array = json!({ "type": "array", "items": schema(choices, depth - 1) });
    if choices.rarely(2) {
        array["minItems"] = json!(choices.below(4));
    }
    if choices.rarely(2) {
        array["maxItems"] = json!(choices.below(4));
    }
    if choices.rarely(4) {
        array["prefixItems"] = json!([schema(choices, depth - 1), schema(choices, depth - 1)]);
    }
    array
}

fn string(choices: &mut Choices<'_>) -> Value {
    let mut string = json!({ "type": "string" });
    match choices.below(4) {
        0 => string["minLength"] = json!(choices.below(4)),
        1 => string["pattern"] = json!(choices.pick(&PATTERNS).0),
        2 => string["format"] = json!(choices.pick(&FORMATS)),
        _ => {}
    }
    if choices.rarely(2) {
        string["maxLength"] = json!(choices.below(6));
    }
    string
}

fn number(choices: &mut Choices<'_>) -> Value {
    let mut number = json!({ "type": choices.pick(&["integer", "number"]) });
    for key in [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    ] {
        if choices.rarely(4) {
            let values = [
                json!(0),
                json!(-3),
                json!(1.5),
                json!(100),
                json!(0.1),
                json!(1e20),
                json!(2),
            ];
            number[key] = choices.pick(&values).clone();
        }
    }
    number
}
