//! Validation by a JSON schema, keyword by keyword. Keywords that a generator does not write restrict nothing.

use serde_json::Value;

type Matches = fn(&str) -> bool;

/// Patterns of strings, with a function that does without regular expressions; none for invalid ones.
pub(crate) const PATTERNS: [(&str, Option<Matches>); 6] = [
    (
        "^a+$",
        Some(|text| !text.is_empty() && text.chars().all(|c| c == 'a')),
    ),
    ("b", Some(|text| text.contains('b'))),
    (
        "^[a-c]{2,3}$",
        Some(|text| {
            (2..=3).contains(&text.len()) && text.chars().all(|c| ('a'..='c').contains(&c))
        }),
    ),
    (
        "^(a|bc)*$",
        Some(|text| text.replace("bc", "").chars().all(|c| c == 'a')),
    ),
    ("(?=a)", None),
    ("[", None),
];

/// Nesting of references.
const DEPTH: usize = 64;

/// Returns whether a value is valid by a schema of a document.
pub(crate) fn is_valid(schema: &Value, value: &Value, document: &Value) -> bool {
    valid(schema, value, document, DEPTH)
}

fn valid(schema: &Value, value: &Value, document: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return true;
    };
    let Value::Object(keywords) = schema else {
        return schema != &Value::Bool(false);
    };
    let inner = |schema: &Value, value: &Value| valid(schema, value, document, depth);
    let count = |list: &Value| {
        list.as_array()
            .into_iter()
            .flatten()
            .filter(|schema| inner(schema, value))
            .count()
    };
    keywords.iter().all(|(keyword, limit)| match &**keyword {
        "$ref" => resolve(limit, document).is_none_or(|schema| inner(schema, value)),
        "type" => is_type(limit, value),
        "enum" => limit
            .as_array()
            .is_none_or(|all| all.iter().any(|item| same(item, value))),
        "const" => same(limit, value),
        "anyOf" => count(limit) > 0 || !limit.is_array(),
        "oneOf" => count(limit) == 1 || !limit.is_array(),
        "allOf" => limit.as_array().is_none_or(|all| count(limit) == all.len()),
        _ => match value {
            Value::Object(_) => object(keyword, schema, value, &inner),
            Value::Array(items) => array(keyword, schema, items, &inner),
            Value::String(text) => string(keyword, limit, text),
            Value::Number(_) => number(keyword, limit, value),
            _ => true,
        },
    })
}

fn resolve<'d>(reference: &Value, document: &'d Value) -> Option<&'d Value> {
    document.pointer(reference.as_str()?.strip_prefix('#')?)
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
}

fn is_type(types: &Value, value: &Value) -> bool {
    let is_one = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("number") => value.is_number(),
        Some("integer") => is_integer(value),
        _ => true,
    };
    types
        .as_array()
        .map_or_else(|| is_one(types), |all| all.iter().any(is_one))
}

/// Returns whether values are equal; 1 and 1.0 are.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(_)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

type Inner<'a> = &'a dyn Fn(&Value, &Value) -> bool;

fn object(keyword: &str, schema: &Value, value: &Value, inner: Inner<'_>) -> bool {
    let limit = &schema[keyword];
    let items = value.as_object().expect("an object");
    let declared = |key: &String| schema["properties"].get(key).is_some();
    let by_pattern = |key: &str| {
        schema["patternProperties"]
            .as_object()
            .is_some_and(|all| all.keys().any(|p| fits(p, key)))
    };
    match keyword {
        "properties" => items
            .iter()
            .all(|(key, value)| limit.get(key).is_none_or(|schema| inner(schema, value))),
        "required" => limit.as_array().is_none_or(|all| {
            all.iter()
                .all(|key| key.as_str().is_none_or(|key| items.contains_key(key)))
        }),
        "additionalProperties" => {
            let mut others = items
                .iter()
                .filter(|(key, _)| !declared(key) && !by_pattern(key));
            others.all(|(_, value)| inner(limit, value))
        }
        "patternProperties" => limit.as_object().is_none_or(|patterns| {
            patterns.iter().all(|(pattern, schema)| {
                items
                    .iter()
                    .all(|(key, value)| !fits(pattern, key) || inner(schema, value))
            })
        }),
        "maxProperties" => limit.as_u64().is_none_or(|most| items.len() as u64 <= most),
        _ => true,
    }
}

fn array(keyword: &str, schema: &Value, items: &[Value], inner: Inner<'_>) -> bool {
    let limit = &schema[keyword];
    let first = schema["prefixItems"].as_array().map_or(0, Vec::len);
    match keyword {
        "items" => items.iter().skip(first).all(|item| inner(limit, item)),
        "prefixItems" => limit
            .as_array()
            .into_iter()
            .flatten()
            .zip(items)
            .all(|(schema, item)| inner(schema, item)),
        "minItems" => limit
            .as_u64()
            .is_none_or(|least| items.len() as u64 >= least),
        "maxItems" => limit.as_u64().is_none_or(|most| items.len() as u64 <= most),
        _ => true,
    }
}

/// Returns whether a text fits a pattern; an unknown one fits no key, and every string.
fn fits(pattern: &str, text: &str) -> bool {
    let known = PATTERNS.iter().find(|(known, _)| *known == pattern);
    known
        .and_then(|(_, fits)| *fits)
        .is_some_and(|fits| fits(text))
}

fn string(keyword: &str, limit: &Value, text: &str) -> bool {
    let length = text.chars().count() as u64;
    match keyword {
        "minLength" => limit.as_u64().is_none_or(|least| length >= least),
        "maxLength" => limit.as_u64().is_none_or(|most| length <= most),
        "pattern" => {
            let known = PATTERNS
                .iter()
                .any(|(known, fits)| limit == *known && fits.is_some());
            !known || limit.as_str().is_none_or(|pattern| fits(pattern, text))
        }
        _ => true,
    }
}

fn number(keyword: &str, limit: &Value, value: &Value) -> bool {
    let (Some(limit), Some(value)) = (limit.as_f64(), value.as_f64()) else {
        return true;
    };
    match keyword {
        "minimum" => value >= limit,
        "maximum" => value <= limit,
        "exclusiveMinimum" => value > limit,
        "exclusiveMaximum" => value < limit,
        // Numbers of many digits are rounded.
        "multipleOf" if limit > 0.0 && value.abs() < 1e12 => {
            let quotient = value / limit;
            (quotient - quotient.round()).abs() < 1e-6 * quotient.abs().max(1.0)
        }
        _ => true,
    }
}
