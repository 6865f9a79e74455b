//! Attributes and items of values, as in Jinja: `a.b` is an attribute, or else an item; `a['b']` is
//! an item, or else an attribute.

use super::failure::{Outcome, fail};
use super::heap::Heap;
use super::method_names::{has_method, is_denied};
use super::strings::{characters, length};
use super::value::{ListKind, Value};
use std::sync::Arc;

/// The error of an operation on an undefined value.
pub(super) fn undefined_error<T>(name: Option<&Arc<str>>) -> Outcome<T> {
    match name {
        Some(name) => fail(format_args!("{name:.80} is undefined")),
        None => fail("a value is undefined"),
    }
}

/// `value.name`.
pub(super) fn attribute(heap: &Heap, value: &Value, name: &Arc<str>) -> Outcome<Value> {
    if let Some(found) = own_attribute(heap, value, name)? {
        return Ok(found);
    }
    let item = match value {
        Value::Dict(dict) => dict.get_str(name).cloned(),
        _ => None,
    };
    Ok(item.unwrap_or_else(|| Value::Undefined(Some(Arc::clone(name)))))
}

/// `value[key]`.
pub(super) fn item(heap: &Heap, value: &Value, key: &Value) -> Outcome<Value> {
    if let Some(found) = subscript(heap, value, key)? {
        return Ok(found);
    }
    let Value::Str(name) = key else {
        return Ok(Value::Undefined(None));
    };
    let found = own_attribute(heap, value, name)?;
    Ok(found.unwrap_or_else(|| Value::Undefined(Some(Arc::clone(name)))))
}

/// An attribute of Python's object.
pub(super) fn own_attribute(heap: &Heap, value: &Value, name: &Arc<str>) -> Outcome<Option<Value>> {
    if is_denied(value, name) {
        return Ok(Some(Value::Undefined(Some(Arc::clone(name)))));
    }
    if has_method(value, name) {
        return value.clone().method(name, &heap.budget).map(Some);
    }
    Ok(match (value, &**name) {
        (Value::Undefined(of), _) => return undefined_error(of.as_ref()),
        (Value::Namespace(number), _) => heap.attribute(*number, name),
        (Value::List(list), "grouper") if list.kind == ListKind::Group => {
            list.items.first().cloned()
        }
        (Value::List(list), "list") if list.kind == ListKind::Group => list.items.get(1).cloned(),
        (Value::Int(_) | Value::Bool(_), "real" | "numerator") => value.int().map(Value::Int),
        (Value::Int(_) | Value::Bool(_), "imag") => Some(Value::Int(0)),
        (Value::Int(_) | Value::Bool(_), "denominator") => Some(Value::Int(1)),
        (Value::Float(_), "real") => Some(value.clone()),
        (Value::Float(_), "imag") => Some(Value::Float(0.0)),
        (Value::Range(range), "start") => Some(Value::Int(range.start)),
        (Value::Range(range), "stop") => Some(Value::Int(range.stop)),
        (Value::Range(range), "step") => Some(Value::Int(range.step)),
        (Value::Macro(value), "name") => Some(Value::Str(Arc::clone(&value.definition.name))),
        (Value::Macro(value), "arguments") => {
            let mut names = heap.items();
            for name in &value.definition.parameter_names {
                names.push(Value::Str(Arc::clone(name)))?;
            }
            Some(names.finish(ListKind::Tuple)?)
        }
        (Value::Macro(value), "caller" | "catch_kwargs" | "catch_varargs") => {
            let names = ["caller", "catch_kwargs", "catch_varargs"];
            let at = names.iter().position(|n| *n == &**name).unwrap_or(0);
            Some(Value::Bool(value.definition.implicit[at].is_some()))
        }
        (Value::Cycler(cycler), "current") => cycler.items.items.get(cycler.at.get()).cloned(),
        (Value::Cycler(cycler), "items") => Some(Value::List(cycler.items.clone())),
        _ => None,
    })
}

/// Python's `value[key]`; `None` if it raises an error.
fn subscript(heap: &Heap, value: &Value, key: &Value) -> Outcome<Option<Value>> {
    Ok(match (value, key) {
        (Value::Undefined(name), _) => return undefined_error(name.as_ref()),
        (Value::Dict(dict), Value::Str(name)) => dict.get_str(name).cloned(),
        (Value::Dict(_), Value::List(list)) if !list.kind.is_tuple() => None,
        (Value::Dict(_), Value::Dict(_)) => None,
        (Value::Dict(dict), key) => dict.get(key, &heap.budget)?.cloned(),
        (_, Value::Bool(_) | Value::Int(_)) => {
            let index = key.int().unwrap_or(0);
            return index_of(heap, value, index);
        }
        _ => None,
    })
}

fn index_of(heap: &Heap, value: &Value, index: i128) -> Outcome<Option<Value>> {
    let length = match value {
        Value::Str(text) => {
            heap.budget.work(text.len())?;
            length(text)
        }
        Value::List(list) if list.kind == ListKind::List || list.kind.is_tuple() => {
            list.items.len()
        }
        Value::Range(range) => range.len(),
        _ => return Ok(None),
    };
    let from_end = i128::try_from(length).unwrap_or(i128::MAX);
    let index = if index < 0 {
        index.saturating_add(from_end)
    } else {
        index
    };
    let Some(index) = usize::try_from(index).ok().filter(|index| *index < length) else {
        return Ok(None);
    };
    Ok(Some(match value {
        Value::Str(text) => heap.text(characters(text, index, index + 1))?,
        Value::List(list) => list.items[index].clone(),
        Value::Range(range) => range.get(index),
        _ => return Ok(None),
    }))
}

/// A path of attributes, as in `map(attribute='a.0.b')`.
pub(super) struct AttributePath(Vec<Value>);

impl AttributePath {
    pub(super) fn new(heap: &Heap, path: &Value) -> Outcome<Self> {
        let Value::Str(text) = path else {
            return Ok(Self(vec![path.clone()]));
        };
        let mut parts = heap.items();
        for part in text.split('.') {
            match part.parse::<u32>() {
                Ok(index) => parts.push(Value::Int(index.into()))?,
                Err(_) => parts.push_text(part)?,
            }
        }
        Ok(Self(parts.into_vec()))
    }

    /// The value at the path. A missing part has the value `default`.
    pub(super) fn get(&self, heap: &Heap, value: &Value, default: &Value) -> Outcome<Value> {
        let mut value = value.clone();
        for part in &self.0 {
            value = item(heap, &value, part)?;
            if value.is_undefined() && !matches!(default, Value::None | Value::Undefined(_)) {
                value = default.clone();
            }
        }
        Ok(value)
    }
}
