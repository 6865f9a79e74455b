//! Grammar of call bodies with an element for each argument, and strings as plain text: the notation of
//! Qwen 3.5, Qwen 3 Coder and GLM.

use super::lark::{self, Rules, marker};
use super::tags::Tags;
use super::texts::{self, Texts};
use crate::grammar::schema::types::{Types, target};
use serde_json::{Map, Value as Json, json};
use tabla_core::error::{Result, bail};

/// Returns the Lark expression of a call body.
///
/// # Errors
/// `Argument` for a required property whose name the notation cannot express; `Grammar` for a restriction
/// of a strict tool that it cannot express.
pub(super) fn body(
    name: &str,
    schema: &Json,
    tags: &Tags,
    rules: &mut Rules<'_>,
) -> Result<String> {
    let [before, after] = tags.name;
    let mut parts = vec![marker(&[before, name, after].concat(), rules.tokenizer)];
    let is_expressible = |key: &str| !key.is_empty() && !key.contains(tags.end_of_key);
    let [before_key, after_key] = tags.key;
    let end = marker(tags.after, rules.tokenizer);
    for argument in arguments(schema, is_expressible, rules)? {
        let open = [before_key, &argument.key, after_key].concat();
        let open = marker(&open, rules.tokenizer);
        let value = value(&argument, schema, tags, rules)?;
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
#[derive(Clone, Debug)]
pub(super) struct Argument {
    pub(super) key: String,
    pub(super) schema: Json,
    pub(super) is_required: bool,
}

/// Keywords of an object that [`arguments`] expresses.
const EXPRESSED: &[&str] = &[
    "$defs",
    "$ref",
    "additionalProperties",
    "allOf",
    "properties",
    "required",
    "type",
    "x-guidance",
];

/// Returns the arguments of a tool in the order of the schema, then required ones without a schema.
/// Optional ones whose names cannot be expressed are left out.
///
/// # Errors
/// `Argument` for a required argument whose name cannot be expressed; `Grammar` for a restriction of a
/// strict tool.
pub(super) fn arguments(
    schema: &Json,
    is_expressible: impl Fn(&str) -> bool,
    rules: &Rules<'_>,
) -> Result<Vec<Argument>> {
    let mut all: Map<String, Json> = Map::new();
    let mut names = Vec::new();
    for part in parts(schema, schema, 0) {
        for (key, value) in part {
            let is_open =
                key == "additionalProperties" && value != false && part.contains_key("properties");
            if !EXPRESSED.contains(&&**key) || is_open && value != true {
                rules.inexpressible(key)?;
            }
        }
        for (key, property) in part
            .get("properties")
            .and_then(Json::as_object)
            .into_iter()
            .flatten()
        {
            let both = match all.remove(key) {
                Some(other) if other != true => json!({ "allOf": [other, property] }),
                _ => property.clone(),
            };
            all.insert(key.clone(), both);
        }
        names.extend(required(part));
    }
    for name in &names {
        all.entry(*name).or_insert(true.into());
    }
    let mut arguments = Vec::new();
    for (key, schema) in all {
        let is_required = names.contains(&&*key);
        if schema == false {
            if is_required {
                bail!(Grammar, "the required property {key:?} allows no value");
            }
            continue;
        }
        if is_expressible(&key) {
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

/// Returns the schemas that together describe an object: a schema, those of `allOf` and references.
fn parts<'a>(schema: &'a Json, root: &'a Json, depth: usize) -> Vec<&'a Map<String, Json>> {
    let Some(fields) = schema.as_object().filter(|_| depth < 16) else {
        return Vec::new();
    };
    let all = fields.get("allOf").and_then(Json::as_array);
    let all = all.into_iter().flatten();
    let reference = fields
        .get("$ref")
        .and_then(|reference| target(reference, root));
    let others = all
        .chain(reference)
        .flat_map(|part| parts(part, root, depth + 1));
    std::iter::once(fields).chain(others).collect()
}

/// Returns whether a schema declares no arguments and allows any.
pub(super) fn allows_any(schema: &Json) -> bool {
    let parts = parts(schema, schema, 0);
    parts.iter().all(|part| {
        let properties = part.get("properties").and_then(Json::as_object);
        properties.is_none_or(Map::is_empty)
            && required(part).is_empty()
            && part.get("additionalProperties") != Some(&Json::Bool(false))
    })
}

/// Returns the names of required properties.
pub(super) fn required(object: &Map<String, Json>) -> Vec<&str> {
    let names = object.get("required").and_then(Json::as_array);
    names
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect()
}

/// Returns the expression of a value and the marker that ends it.
///
/// # Errors
/// `Grammar` for a restriction of a strict tool that the notation cannot express.
fn value(argument: &Argument, root: &Json, tags: &Tags, rules: &mut Rules<'_>) -> Result<String> {
    let schema = &argument.schema;
    let types = Types::of(schema, root);
    let end = marker(tags.end_of_value, rules.tokenizer);
    if types == Types::BOOLEAN
        && texts::allows(schema, root, &json!(true))
        && texts::allows(schema, root, &json!(false))
    {
        return Ok(format!(
            "(\"true\" | \"false\" | \"True\" | \"False\") {end}"
        ));
    }
    if !types.contains(Types::STRING) {
        return Ok(format!("{} {end}", lark::json(schema, root)));
    }
    let tag = tags.end_of_value.trim_start();
    match texts::texts(schema, root) {
        _ if *schema == true || schema.as_object().is_some_and(Map::is_empty) => {
            Ok(text(tags, rules))
        }
        Some(Texts::Any) if types == Types::STRING => Ok(text(tags, rules)),
        Some(strings) => {
            let mixed = texts::with_other_types(schema, root, strings, types);
            let text =
                rules.restricted_until(&mixed.text, tags.end_of_value, tag, mixed.may_be_empty);
            Ok(match mixed.json {
                None => text,
                Some(schema) => format!("({text} | {} {end})", lark::json(&schema, root)),
            })
        }
        None => {
            rules.inexpressible(&argument.key)?;
            Ok(text(tags, rules))
        }
    }
}

/// Returns the expression of any text and the marker that ends it.
fn text(tags: &Tags, rules: &mut Rules<'_>) -> String {
    rules.text_until(
        "PARAMETER_TEXT",
        tags.end_of_value,
        tags.end_of_value.trim_start(),
    )
}
