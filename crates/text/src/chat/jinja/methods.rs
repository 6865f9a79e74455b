//! Methods of lists, dicts and numbers, as in Python.

use super::arguments::{CallArguments, integer, required};
use super::build::{Entries, tuple};
use super::failure::{Outcome, fail};
use super::heap::Heap;
use super::ops::{iterate, len};
use super::text_methods::str_method;
use super::value::{ListKind, Value, equal};

/// Calls a method that the receiver has.
pub(super) fn call_method(
    heap: &Heap,
    receiver: &Value,
    name: &str,
    arguments: CallArguments,
) -> Outcome<Value> {
    match receiver {
        Value::Str(receiver) => str_method(heap, receiver, name, arguments),
        Value::List(list) => list_method(heap, receiver, &list.items, name, arguments),
        Value::Dict(_) => dict_method(heap, receiver, name, arguments),
        Value::Cycler(cycler) => {
            arguments.none(name)?;
            let at = cycler.at.get();
            cycler.at.set(match name {
                "reset" => 0,
                _ => (at + 1) % cycler.items.items.len().max(1),
            });
            let item = cycler.items.items.get(at).filter(|_| name == "next");
            Ok(item.cloned().unwrap_or(Value::None))
        }
        other => number_method(other, name, arguments),
    }
}

fn number_method(value: &Value, name: &str, arguments: CallArguments) -> Outcome<Value> {
    arguments.none(name)?;
    Ok(match (name, value, value.int()) {
        ("bit_count", _, Some(number)) => Value::Int(number.unsigned_abs().count_ones().into()),
        ("bit_length", _, Some(number)) => {
            Value::Int((128 - number.unsigned_abs().leading_zeros()).into())
        }
        ("is_integer", Value::Float(number), _) => Value::Bool(number.fract() == 0.0),
        ("is_integer", _, _) => Value::Bool(true),
        (_, _, Some(number)) => Value::Int(number),
        _ => value.clone(),
    })
}

fn list_method(
    heap: &Heap,
    receiver: &Value,
    items: &[Value],
    name: &str,
    arguments: CallArguments,
) -> Outcome<Value> {
    if name == "copy" {
        arguments.none(name)?;
        return Ok(receiver.clone());
    }
    let [item, start, end] = arguments.bind(name, ["-", "--", "---"])?;
    let item = required(name, item)?;
    let number = |n: usize| Value::Int(i128::try_from(n).unwrap_or(i128::MAX));
    if name == "count" {
        let mut count = 0;
        for existing in items {
            count += usize::from(equal(existing, &item, &heap.budget)?);
        }
        return Ok(number(count));
    }
    let total = i128::try_from(items.len()).unwrap_or(i128::MAX);
    let bound = |value: Option<&Value>, default: i128| -> Outcome<usize> {
        let number = integer(name, value, default)?;
        let number = if number < 0 {
            number.saturating_add(total)
        } else {
            number
        };
        Ok(usize::try_from(number.max(0)).unwrap_or(usize::MAX))
    };
    let (start, end) = (bound(start.as_ref(), 0)?, bound(end.as_ref(), total)?);
    for (at, existing) in items.iter().enumerate().take(end).skip(start) {
        if equal(existing, &item, &heap.budget)? {
            return Ok(number(at));
        }
    }
    fail("index: the value is not in the list")
}

fn dict_method(
    heap: &Heap,
    receiver: &Value,
    name: &str,
    arguments: CallArguments,
) -> Outcome<Value> {
    let Value::Dict(dict) = receiver else {
        return fail("not a dict");
    };
    match name {
        "get" => {
            let [key, default] = arguments.bind(name, ["-", "--"])?;
            let key = required(name, key)?;
            let found = dict.get(&key, &heap.budget)?.cloned();
            Ok(found.or(default).unwrap_or(Value::None))
        }
        "fromkeys" => from_keys(heap, arguments),
        "copy" => {
            arguments.none(name)?;
            Ok(receiver.clone())
        }
        _ => {
            arguments.none(name)?;
            let mut items = heap.items();
            for (key, value) in dict.iter() {
                items.push(match name {
                    "items" => tuple(&heap.budget, [key.clone(), value.clone()])?,
                    "keys" => key.clone(),
                    _ => value.clone(),
                })?;
            }
            items.finish(match name {
                "items" => ListKind::Items,
                "keys" => ListKind::Keys,
                _ => ListKind::Values,
            })
        }
    }
}

/// `dict.fromkeys(keys, value)`.
pub(super) fn from_keys(heap: &Heap, arguments: CallArguments) -> Outcome<Value> {
    let [keys, value] = arguments.bind("fromkeys", ["-", "--"])?;
    let value = value.unwrap_or(Value::None);
    let mut entries = Entries::new(&heap.budget);
    for key in &iterate(heap, &required("fromkeys", keys)?)?.items {
        entries.insert(key.clone(), value.clone())?;
    }
    entries.dict()
}

/// The length of a value, as an integer.
pub(super) fn length_of(heap: &Heap, value: &Value) -> Outcome<Value> {
    let length = len(heap, value)?;
    Ok(Value::Int(i128::try_from(length).unwrap_or(i128::MAX)))
}
