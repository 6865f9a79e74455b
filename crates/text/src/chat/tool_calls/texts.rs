//! Strings of a schema as plain text: Lark expressions of terminals.

use super::lark;
use crate::grammar::schema::strings::{lark_regex, whole_text};
use crate::grammar::schema::types::{Types, target};
use crate::pattern::FullMatch;
use serde_json::{Map, Value as Json, json};

/// Texts that a schema allows as strings.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Texts {
    Any,
    None,
    /// Texts that match an expression of terminals.
    Matching {
        text: String,
        may_be_empty: bool,
    },
}

/// Maximum number of references and parts that are followed.
const DEPTH_MAX: usize = 16;

/// Returns the texts that a schema allows as strings. Returns `None` if terminals cannot express them.
pub(super) fn texts(schema: &Json, root: &Json) -> Option<Texts> {
    at_depth(schema, root, 0)
}

fn at_depth(schema: &Json, root: &Json, depth: usize) -> Option<Texts> {
    let fields = match schema {
        Json::Bool(false) => return Some(Texts::None),
        Json::Object(fields) if depth < DEPTH_MAX => fields,
        Json::Object(_) => return None,
        _ => return Some(Texts::Any),
    };
    let mut found = own(fields)?;
    let next = |schema| at_depth(schema, root, depth + 1);
    for part in fields
        .get("allOf")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
    {
        found = and(found, next(part)?);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Json::Array(items)) = fields.get(key) {
            let items: Option<Vec<Texts>> = items.iter().map(next).collect();
            found = and(found, items?.into_iter().fold(Texts::None, or));
        }
    }
    if let Some(reference) = fields.get("$ref") {
        found = and(found, next(target(reference, root)?)?);
    }
    Some(found)
}

/// Returns the texts that the keywords of a schema itself allow.
fn own(fields: &Map<String, Json>) -> Option<Texts> {
    let mut found = Texts::Any;
    let is_string = |name: &Json| name == "string";
    let has_strings = match fields.get("type") {
        Some(Json::Array(names)) => names.iter().any(is_string),
        Some(name) => is_string(name),
        None => true,
    };
    if !has_strings {
        return Some(Texts::None);
    }
    let constant = fields.get("const").map(std::slice::from_ref);
    let values = fields
        .get("enum")
        .and_then(Json::as_array)
        .map(Vec::as_slice);
    for values in constant.into_iter().chain(values) {
        let words = values.iter().filter_map(Json::as_str);
        let words = words.map(|word| Texts::Matching {
            text: lark::string(word),
            may_be_empty: word.is_empty(),
        });
        found = and(found, words.fold(Texts::None, or));
    }
    if let Some(Json::String(pattern)) = fields.get("pattern") {
        found = and(found, regex(&whole_text(pattern)?)?);
    }
    let length = |key: &str| fields.get(key).and_then(Json::as_u64);
    let (min, max) = (length("minLength").unwrap_or(0), length("maxLength"));
    if min > 0 || max.is_some() {
        let max = max.map(|max| max.to_string()).unwrap_or_default();
        found = and(found, regex(&format!("(?s:.{{{min},{max}}})"))?);
    }
    Some(found)
}

/// Returns the texts that a regex matches completely.
fn regex(regex: &str) -> Option<Texts> {
    let full = FullMatch::new(regex).ok()?;
    Some(Texts::Matching {
        text: lark_regex(regex),
        may_be_empty: full.matches("").ok()?,
    })
}

fn and(a: Texts, b: Texts) -> Texts {
    match (a, b) {
        (Texts::None, _) | (_, Texts::None) => Texts::None,
        (Texts::Any, other) | (other, Texts::Any) => other,
        (
            Texts::Matching {
                text: a,
                may_be_empty: a_empty,
            },
            Texts::Matching {
                text: b,
                may_be_empty: b_empty,
            },
        ) => Texts::Matching {
            text: format!("({a}) & ({b})"),
            may_be_empty: a_empty && b_empty,
        },
    }
}

fn or(a: Texts, b: Texts) -> Texts {
    match (a, b) {
        (Texts::None, other) | (other, Texts::None) => other,
        (Texts::Any, _) | (_, Texts::Any) => Texts::Any,
        (
            Texts::Matching {
                text: a,
                may_be_empty: a_empty,
            },
            Texts::Matching {
                text: b,
                may_be_empty: b_empty,
            },
        ) => Texts::Matching {
            text: format!("({a}) | ({b})"),
            may_be_empty: a_empty || b_empty,
        },
    }
}

/// Texts of strings and of other values, as the parser of calls distinguishes them: text that is JSON of an
/// allowed type is that value.
#[derive(Debug)]
pub(super) struct Mixed {
    /// Expression of terminals.
    pub(super) text: String,
    pub(super) may_be_empty: bool,
    /// Schema of the values that terminals cannot express.
    pub(super) json: Option<Json>,
}

/// Returns the expression of the texts of a schema that allows `types`.
pub(super) fn with_other_types(schema: &Json, root: &Json, strings: Texts, types: Types) -> Mixed {
    let (mut text, may_be_empty) = match strings {
        Texts::Matching { text, may_be_empty } => (text, may_be_empty),
        _ => ("/(?s:.*)/".to_string(), true),
    };
    if types == Types::STRING {
        return Mixed {
            text,
            may_be_empty,
            json: None,
        };
    }
    const SPACE: &str = r"[ \t\n\r]*";
    // Text in quotes is the string within them.
    let mut excluded = vec![format!("{SPACE}\"(?s:.*)")];
    let (mut words, mut others) = (Vec::new(), Vec::new());
    for (kind, names) in [
        (Types::NULL, "null|None"),
        (Types::BOOLEAN, "true|false|True|False"),
    ] {
        if types.contains(kind) {
            excluded.push(format!("{SPACE}(?:{names}){SPACE}"));
        }
    }
    for value in [Json::Null, true.into(), false.into()] {
        if allows(schema, root, &value) {
            words.push(lark::string(&value.to_string()));
        }
    }
    if types.contains(Types::NUMBER) {
        match numbers(schema, root, 0) {
            Some(regex) => {
                excluded.push(format!(
                    r"{SPACE}-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?{SPACE}"
                ));
                words.push(format!("/{regex}/"));
            }
            None => {
                excluded.push(format!("{SPACE}[0-9-](?s:.*)"));
                others.push("number");
            }
        }
    }
    for (kind, name, open) in [
        (Types::ARRAY, "array", r"\["),
        (Types::OBJECT, "object", r"\{"),
    ] {
        if types.contains(kind) {
            excluded.push(format!("{SPACE}{open}(?s:.*)"));
            others.push(name);
        }
    }
    text = format!("({text}) & ~/{}/", excluded.join("|"));
    for word in words {
        text = format!("({text}) | {word}");
    }
    let json = (!others.is_empty()).then(|| json!({ "allOf": [schema, { "type": others }] }));
    Mixed {
        text,
        may_be_empty,
        json,
    }
}

/// Returns whether a schema allows null or a boolean.
pub(super) fn allows(schema: &Json, root: &Json, value: &Json) -> bool {
    fn at_depth(schema: &Json, root: &Json, value: &Json, depth: usize) -> bool {
        let fields = match schema {
            Json::Bool(is_any) => return *is_any,
            Json::Object(fields) if depth < DEPTH_MAX => fields,
            _ => return true,
        };
        let next = |schema: &Json| at_depth(schema, root, value, depth + 1);
        let name = if value.is_null() { "null" } else { "boolean" };
        let list = |key: &str| fields.get(key).and_then(Json::as_array);
        fields.get("type").is_none_or(|types| match types {
            Json::Array(types) => types.iter().any(|other| other == name),
            other => other == name,
        }) && fields.get("const").is_none_or(|constant| constant == value)
            && list("enum").is_none_or(|values| values.contains(value))
            && list("allOf").is_none_or(|all| all.iter().all(next))
            && list("anyOf").is_none_or(|all| all.iter().any(next))
            && list("oneOf").is_none_or(|all| all.iter().any(next))
            && fields
                .get("$ref")
                .and_then(|to| target(to, root))
                .is_none_or(next)
    }
    at_depth(schema, root, value, 0)
}

/// Returns the regex of the numbers of a schema, `None` if it restricts them or has several types of them.
fn numbers(schema: &Json, root: &Json, depth: usize) -> Option<&'static str> {
    const INTEGER: &str = "-?(?:0|[1-9][0-9]*)";
    const NUMBER: &str = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?";
    const RESTRICTIONS: &[&str] = &[
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maximum",
        "minimum",
        "multipleOf",
    ];
    let fields = schema.as_object().filter(|_| depth < DEPTH_MAX)?;
    if RESTRICTIONS.iter().any(|key| fields.contains_key(*key)) {
        return None;
    }
    let mut found: Vec<&'static str> = Vec::new();
    let names = match fields.get("type") {
        Some(Json::Array(names)) => names.as_slice(),
        Some(name) => std::slice::from_ref(name),
        None => &[],
    };
    for name in names {
        match name.as_str() {
            Some("integer") => found.push(INTEGER),
            Some("number") => found.push(NUMBER),
            _ => {}
        }
    }
    let lists = ["allOf", "anyOf", "oneOf"].into_iter();
    let lists = lists
        .filter_map(|key| fields.get(key)?.as_array())
        .flatten();
    let reference = fields.get("$ref").and_then(|to| target(to, root));
    for part in lists.chain(reference) {
        if Types::of(part, root).contains(Types::NUMBER) {
            found.push(numbers(part, root, depth + 1)?);
        }
    }
    found.dedup();
    match found.as_slice() {
        [one] => Some(one),
        [] if names.is_empty() => Some(NUMBER),
        _ => None,
    }
}
