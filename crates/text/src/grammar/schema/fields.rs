//! Keywords of schemas: additions, and what several of them mean together.

use super::strings;
use serde_json::{Map, Value as Json, json};

/// Position of a schema in a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The schema is the root of a grammar, so `#` refers to it.
    Root,
    /// The schema becomes a part of another one. Its definitions move to the root of that one.
    Part,
}

/// Returns the schemas of a keyword with a list of schemas.
pub(super) fn list<'a>(fields: &'a Map<String, Json>, key: &str) -> &'a [Json] {
    let list = fields.get(key).and_then(Json::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// Adds a keyword, which a schema may have already: then the other value is a schema in `allOf`.
pub(super) fn add(out: &mut Map<String, Json>, key: &str, value: Json) {
    match out.contains_key(key) {
        true => conjoin(out, json!({ key: value })),
        false => drop(out.insert(key.into(), value)),
    }
}

/// Adds a schema to `allOf`.
pub(super) fn conjoin(out: &mut Map<String, Json>, schema: Json) {
    let all = out.entry("allOf").or_insert_with(|| json!([]));
    if let Json::Array(all) = all {
        all.push(schema);
    }
}

/// Returns the pattern of the names of properties, `None` if other keywords restrict them.
pub(super) fn names_pattern(names: &Json) -> Option<String> {
    let fields = names.as_object()?;
    let mut restrictions = fields.iter().filter(|(key, value)| {
        !["title", "description", "$schema", "$comment"].contains(&&***key)
            && (**key != "type" || **value != "string")
    });
    let (key, value) = restrictions.next()?;
    if restrictions.next().is_some() {
        return None;
    }
    let escape = |c: char| match c.is_ascii_punctuation() && !"<>_".contains(c) {
        true => format!(r"\{c}"),
        false => c.to_string(),
    };
    let escaped = |name: &Json| Some(name.as_str()?.chars().map(escape).collect::<String>());
    match &**key {
        "pattern" => strings::pattern(value.as_str()?).ok(),
        "format" => strings::format_pattern(value.as_str()?),
        "const" => Some(format!("^{}$", escaped(value)?)),
        "enum" => {
            let names: Option<Vec<String>> = value.as_array()?.iter().map(escaped).collect();
            Some(format!("^(?:{})$", names?.join("|")))
        }
        _ => None,
    }
}

/// Adds null to the values of a schema, as the keyword `nullable` of `OpenAPI` does.
pub(super) fn allow_null(fields: &mut Map<String, Json>) {
    if let Some(Json::Array(values)) = fields.get_mut("enum")
        && !values.contains(&Json::Null)
    {
        values.push(Json::Null);
    }
    match fields.get_mut("type") {
        Some(Json::Array(names)) if !names.contains(&"null".into()) => names.push("null".into()),
        Some(name) if name.is_string() && name != "null" => *name = json!([name, "null"]),
        Some(_) => {}
        None => {
            let schema = std::mem::take(fields);
            fields.insert("anyOf".into(), json!([schema, { "type": "null" }]));
        }
    }
}
