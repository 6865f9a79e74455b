//! Grammar of call bodies in the notation of Qwen 3.5 and Qwen 3 Coder: an element for each
//! argument, with strings as plain text.

use super::lark::{self, Rules};
use super::types::{Types, target};
use serde_json::Value as Json;
use tabla_core::error::{Result, bail};

/// Marker that ends a value. A value cannot contain it.
const END_OF_VALUE: &str = "</parameter>";

/// Returns the Lark expression of a call body.
///
/// # Errors
/// `Argument` for a required property whose name the notation cannot express.
pub(super) fn body(name: &str, schema: &Json, rules: &mut Rules<'_>) -> Result<String> {
    let mut parts = vec![lark::string(&format!("<function={name}>\n"))];
    let object = root_object(schema);
    let empty = serde_json::Map::new();
    let properties = object.get("properties").and_then(Json::as_object);
    let properties = properties.unwrap_or(&empty);
    let required = required(object);
    let any = Json::Bool(true);
    let undeclared = required
        .iter()
        .filter(|key| !properties.contains_key(**key));
    let all = properties
        .iter()
        .map(|(key, property)| (key.as_str(), property));
    for (key, property) in all.chain(undeclared.map(|key| (*key, &any))) {
        let is_required = required.contains(&key);
        if key.is_empty() || key.contains('>') {
            if is_required {
                bail!(
                    Argument,
                    "the tool-call format cannot express the property name {key:?}"
                );
            }
            continue;
        }
        let open = lark::string(&format!("<parameter={key}>\n"));
        let value = value(property, schema, rules);
        let parameter = rules.add(&format!("{open} {value} \"\\n\""));
        parts.push(match is_required {
            true => parameter,
            false => format!("{parameter}?"),
        });
    }
    let allows_others = object.get("additionalProperties") != Some(&Json::Bool(false));
    if properties.is_empty() && required.is_empty() && allows_others {
        let text = text(rules);
        let other = rules.once(
            "other_parameter",
            &format!("\"<parameter=\" /[^>\\n]+/ \">\\n\" {text} \"\\n\""),
        );
        parts.push(format!("{other}*"));
    }
    parts.push(lark::string("</function>"));
    Ok(rules.add(&parts.join(" ")))
}

/// Follows the references at the root of a schema.
pub(super) fn root_object(schema: &Json) -> &Json {
    let mut object = schema;
    for _ in 0..16 {
        let next = object.get("$ref").and_then(|to| target(to, schema));
        object = next.unwrap_or(object);
    }
    object
}

/// Returns the names of required properties.
pub(super) fn required(object: &Json) -> Vec<&str> {
    let names = object.get("required").and_then(Json::as_array);
    names
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect()
}

/// Returns the expression of a value and the marker that ends it.
fn value(schema: &Json, root: &Json, rules: &mut Rules<'_>) -> String {
    let types = Types::of(schema, root);
    let end = lark::string(&format!("\n{END_OF_VALUE}"));
    if types == Types::BOOLEAN && schema.get("const").is_none() && schema.get("enum").is_none() {
        return format!("(\"true\" | \"false\" | \"True\" | \"False\") {end}");
    }
    if !types.contains(Types::STRING) {
        return format!("{} {end}", lark::json(schema, root));
    }
    let target = root_of(schema, root);
    let constant = target.get("const").map(std::slice::from_ref);
    let values = target.get("enum").and_then(Json::as_array);
    let values = constant.or(values.map(Vec::as_slice)).unwrap_or_default();
    let words = values.iter().filter_map(Json::as_str);
    let words = words.filter(|word| !word.contains(END_OF_VALUE));
    let words: Vec<String> = words.map(lark::string).collect();
    match words.len() == values.len() && !words.is_empty() {
        true => format!("({}) {end}", words.join(" | ")),
        false => text(rules).to_string(),
    }
}

/// Follows the references of a property.
fn root_of<'a>(schema: &'a Json, root: &'a Json) -> &'a Json {
    let mut found = schema;
    for _ in 0..16 {
        let next = found.get("$ref").and_then(|to| target(to, root));
        found = next.unwrap_or(found);
    }
    found
}

/// Returns the terminal of any text and the marker that ends it.
fn text(rules: &mut Rules<'_>) -> &'static str {
    let end = lark::string(&format!("\n{END_OF_VALUE}"));
    rules.once(
        "PARAMETER_TEXT",
        &format!("({}) {end}", lark::without(END_OF_VALUE)),
    )
}
