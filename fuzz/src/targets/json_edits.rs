//! Edits of JSON that keep it valid.

use super::choices::Choices;
use serde_json::{Map, Value, json};

/// Maximum number of values that are copied: a value with two copies of another one doubles.
const COPIED_MAX: usize = 256;

/// Changes values of a document, as long as there are choices: replaces, removes, adds and copies them.
pub(crate) fn edit(document: &mut Value, choices: &mut Choices<'_>) {
    let mut removed = Value::Null;
    while !choices.is_empty() {
        let target = descend(document, choices);
        match choices.below(8) {
            0 => {
                let taken = target.take();
                if count(&taken) <= COPIED_MAX {
                    removed = taken;
                }
            }
            1 => *target = removed.clone(),
            2 => add(target, removed.clone(), choices),
            3 => remove(target, choices),
            4 => *target = json!([target.take()]),
            _ => *target = other(target, choices),
        }
    }
}

/// Returns the number of values in a document.
fn count(value: &Value) -> usize {
    let inside: usize = match value {
        Value::Object(map) => map.values().map(count).sum(),
        Value::Array(items) => items.iter().map(count).sum(),
        _ => 0,
    };
    1 + inside
}

/// Returns a value inside, at most as deep as there are choices.
fn descend<'v>(mut value: &'v mut Value, choices: &mut Choices<'_>) -> &'v mut Value {
    for _ in 0..8 {
        let at = usize::from(choices.byte());
        let inside = match &*value {
            Value::Object(map) => map.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        // 255 stays here.
        if at == 255 || inside == 0 {
            break;
        }
        value = match value {
            Value::Object(map) => map.values_mut().nth(at % inside),
            Value::Array(items) => items.get_mut(at % inside),
            _ => None,
        }
        .expect("less than the length");
    }
    value
}

fn add(target: &mut Value, value: Value, choices: &mut Choices<'_>) {
    match target {
        Value::Array(items) => items.push(value),
        Value::Object(map) => _ = map.insert(text(choices), value),
        other => *other = value,
    }
}

fn remove(target: &mut Value, choices: &mut Choices<'_>) {
    let at = choices.below(256);
    match target {
        Value::Array(items) if !items.is_empty() => _ = items.remove(at % items.len()),
        Value::Object(map) if !map.is_empty() => {
            let key = map.keys().nth(at % map.len()).cloned().unwrap_or_default();
            map.shift_remove(&key);
        }
        other => *other = Value::Null,
    }
}

/// Returns another value, mostly of the same type.
fn other(value: &Value, choices: &mut Choices<'_>) -> Value {
    match value {
        Value::Number(n) => match (choices.below(4), n.as_i64()) {
            (0, Some(n)) => json!(n.wrapping_add(1)),
            (1, Some(n)) => json!(n.wrapping_neg()),
            (2, _) => number(choices),
            _ => json!(choices.below(256)),
        },
        Value::String(_) if !choices.rarely(4) => json!(text(choices)),
        Value::Bool(value) if !choices.rarely(4) => json!(!value),
        _ => match choices.below(6) {
            0 => Value::Null,
            1 => json!(text(choices)),
            2 => number(choices),
            3 => json!([]),
            4 => Value::Object(Map::new()),
            _ => json!(true),
        },
    }
}

fn number(choices: &mut Choices<'_>) -> Value {
    match choices.below(6) {
        0 => json!(choices.extreme()),
        1 => json!(choices.extreme().cast_signed()),
        2 => json!(1e300),
        3 => json!(-1e-300),
        4 => json!(0.5),
        _ => json!(choices.position()),
    }
}

/// Returns a text that is short, and may be invalid UTF-8 before it is replaced.
fn text(choices: &mut Choices<'_>) -> String {
    let most = choices.below(12);
    String::from_utf8_lossy(choices.bytes(most)).into_owned()
}
