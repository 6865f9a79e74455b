//! Grammar of call bodies with an element for each argument, and strings as plain text: the notation of
//! Qwen 3.5, Qwen 3 Coder and GLM.

use super::lark::{self, Rules, marker};
use super::tags::Tags;
use super::types::{Types, target};
use serde_json::Value as Json;
use tabla_core::error::{Result, bail};

/// Schema of an argument without one.
static ANY: Json = Json::Bool(true);

/// Returns the Lark expression of a call body.
///
/// # Errors
/// `Argument` for a required property whose name the notation cannot express.
pub(super) fn body(
    name: &str,
    schema: &Json,
    (tags, rules): (&Tags, &mut Rules<'_>),
) -> Result<String> {
    let [before, after] = tags.name;
    let mut parts = vec![marker(&[before, name, after].concat(), rules.tokenizer)];
    let is_expressible = |key: &str| !key.is_empty() && !key.contains(tags.end_of_key);
    let [before_key, after_key] = tags.key;
    let end = marker(tags.after, rules.tokenizer);
    for argument in arguments(schema, is_expressible)? {
        let open = [before_key, argument.key, after_key].concat();
        let open = marker(&open, rules.tokenizer);
        let value = value(argument.schema, schema, (tags, rules));
        let parameter = rules.add(&format!("{open} {value} {end}"));
        parts.push(match argument.is_required {
            true => parameter,
            false => format!("{parameter}?"),
        });
    }
    if allows_any(schema) {
        let text = text(tags, rules);
        let [before, after] = tags.key.map(|text| marker(text, rules.tokenizer));
        let key = r"/[^<>\n]+/";
        let other = format!("{before} {key} {after} {text} {end}");
        let other = rules.once("other_parameter", &other);
        parts.push(format!("{other}*"));
    }
    parts.push(marker(tags.end, rules.tokenizer));
    Ok(rules.add(&parts.join(" ")))
}

/// Argument of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument<'a> {
    pub(super) key: &'a str,
    pub(super) schema: &'a Json,
    pub(super) is_required: bool,
}

/// Returns the arguments of a tool in the order of the schema, then required ones without a schema.
/// Optional ones whose names cannot be expressed are left out.
///
/// # Errors
/// `Argument` for a required argument whose name cannot be expressed.
pub(super) fn arguments(
    schema: &Json,
    is_expressible: impl Fn(&str) -> bool,
) -> Result<Vec<Argument<'_>>> {
    let object = root_object(schema);
    let required = required(object);
    let declared = object.get("properties").and_then(Json::as_object);
    let is_declared = |key: &str| declared.is_some_and(|all| all.contains_key(key));
    let undeclared = required.iter().filter(|key| !is_declared(key));
    let all = declared.into_iter().flatten();
    let all = all.map(|(key, property)| (key.as_str(), property));
    let mut arguments = Vec::new();
    for (key, schema) in all.chain(undeclared.map(|key| (*key, &ANY))) {
        let is_required = required.contains(&key);
        if is_expressible(key) {
            arguments.push(Argument {
                key,
                schema,
                is_required,
            });
        } else if is_required {
            bail!(
                Argument,
                "the tool-call format cannot express the property name {key:?}"
            );
        }
    }
    Ok(arguments)
}

/// Returns whether a schema declares no arguments and allows any.
pub(super) fn allows_any(schema: &Json) -> bool {
    let object = root_object(schema);
    let properties = object.get("properties").and_then(Json::as_object);
    properties.is_none_or(serde_json::Map::is_empty)
        && required(object).is_empty()
        && object.get("additionalProperties") != Some(&Json::Bool(false))
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
fn value(schema: &Json, root: &Json, (tags, rules): (&Tags, &mut Rules<'_>)) -> String {
    let types = Types::of(schema, root);
    let end = marker(tags.end_of_value, rules.tokenizer);
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
    let words = words.filter(|word| !word.contains(tags.end_of_value.trim_start()));
    let words: Vec<String> = words.map(lark::string).collect();
    match words.len() == values.len() && !words.is_empty() {
        true => format!("({}) {end}", words.join(" | ")),
        false => text(tags, rules),
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

/// Returns the expression of any text and the marker that ends it.
fn text(tags: &Tags, rules: &mut Rules<'_>) -> String {
    rules.text_until(
        "PARAMETER_TEXT",
        (tags.end_of_value, tags.end_of_value.trim_start()),
    )
}
