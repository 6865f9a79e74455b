//! Python's operators and the built-in functions that they are based on.

use super::attributes::undefined_error;
use super::failure::{Outcome, fail, too_large};
use super::format::percent;
use super::heap::Heap;
use super::numbers::float_div_mod;
use super::sink::written;
use super::strings::{characters, length};
use super::syntax::Binary;
use super::value::{List, ListKind, Range, Value, equal};
use std::rc::Rc;

/// Maximum length of a `range`, as in Jinja's sandbox.
pub(super) const RANGE_MAX: usize = 100_000;

/// The items of a list or tuple, keys of a dict, characters of a string.
pub(super) fn iterate(heap: &Heap, value: &Value) -> Outcome<Rc<List>> {
    if let Value::List(list) = value {
        return Ok(Rc::clone(list));
    }
    let mut items = heap.items();
    match value {
        Value::Undefined(_) => {}
        Value::Dict(dict) => {
            for (key, _) in dict.iter() {
                items.push(key.clone())?;
            }
        }
        Value::Str(text) => {
            for c in text.chars() {
                items.push_text(c.encode_utf8(&mut [0; 4]))?;
            }
        }
        Value::Range(range) => {
            for index in 0..range.len() {
                items.push(range.get(index))?;
            }
        }
        other => {
            return fail(format_args!("{} object is not iterable", other.type_name()));
        }
    }
    match items.list()? {
        Value::List(list) => Ok(list),
        _ => fail("not a list"),
    }
}

/// `len(value)`.
pub(super) fn len(heap: &Heap, value: &Value) -> Outcome<usize> {
    Ok(match value {
        Value::Undefined(_) => 0,
        Value::Str(text) => {
            heap.budget.work(text.len())?;
            length(text)
        }
        Value::List(list) => list.items.len(),
        Value::Dict(dict) => dict.len(),
        Value::Range(range) => range.len(),
        other => {
            return fail(format_args!(
                "object of type {} has no len()",
                other.type_name()
            ));
        }
    })
}

/// `item in container`.
pub(super) fn contains(heap: &Heap, container: &Value, item: &Value) -> Outcome<bool> {
    match (container, item) {
        (Value::Str(text), Value::Str(part)) => {
            heap.budget.work(text.len())?;
            Ok(text.contains(&**part))
        }
        (Value::Str(_), other) => fail(format_args!(
            "'in <string>' requires string as left operand, not {}",
            other.type_name()
        )),
        (Value::Dict(dict), Value::Str(key)) => Ok(dict.get_str(key).is_some()),
        (Value::Dict(dict), key) => Ok(dict.get(key, &heap.budget)?.is_some()),
        (Value::Range(range), item) => Ok(item.integral().is_some_and(|number| {
            let offset = number.saturating_sub(range.start);
            let index = offset.checked_div(range.step).map(usize::try_from);
            offset % range.step == 0 && matches!(index, Some(Ok(index)) if index < range.len())
        })),
        _ => {
            for existing in &iterate(heap, container)?.items {
                if equal(existing, item, &heap.budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// `value[start:stop:step]`.
pub(super) fn slice(heap: &Heap, value: &Value, parts: [Value; 3]) -> Outcome<Value> {
    let length = match value {
        Value::Undefined(name) => return undefined_error(name.as_ref()),
        Value::Str(_) | Value::Range(_) => len(heap, value)?,
        Value::List(list) if list.kind == ListKind::List || list.kind.is_tuple() => {
            list.items.len()
        }
        other => {
            return fail(format_args!(
                "{} object cannot be sliced",
                other.type_name()
            ));
        }
    };
    let mut bounds = [None; 3];
    for (bound, part) in bounds.iter_mut().zip(&parts) {
        *bound = match part {
            Value::None => None,
            other => match other.int() {
                Some(number) => Some(number),
                None => return fail("slice indices must be integers or none"),
            },
        };
    }
    if bounds[2] == Some(0) {
        return fail("slice step cannot be zero");
    }
    let (start, count, step) = indexes(length, bounds);
    match value {
        Value::Range(range) => {
            let at = |index: i128| range.start.saturating_add(index.saturating_mul(range.step));
            let first = i128::try_from(start).unwrap_or(0);
            let last =
                first.saturating_add(step.saturating_mul(i128::try_from(count).unwrap_or(0)));
            Ok(Value::Range(Range {
                start: at(first),
                stop: at(last),
                step: range.step.saturating_mul(step),
            }))
        }
        Value::Str(text) if bounds[2].unwrap_or(1) == 1 => {
            heap.budget.work(text.len())?;
            heap.text(characters(text, start, start + count))
        }
        Value::Str(text) => {
            heap.budget
                .charge(text.len().saturating_mul(size_of::<char>()))?;
            let chars: Vec<char> = text.chars().collect();
            let selected = selected(start, count, step).map(|index| chars[index]);
            let mut selected = selected.peekable();
            let text = written(&heap.budget, |out| {
                selected.try_for_each(|c| out.push_char(c))
            })?;
            Ok(Value::Str(text.into()))
        }
        _ => {
            let kind = match value {
                Value::List(list) if list.kind.is_tuple() => ListKind::Tuple,
                _ => ListKind::List,
            };
            let list = iterate(heap, value)?;
            let mut items = heap.items();
            for index in selected(start, count, step) {
                items.push(list.items[index].clone())?;
            }
            items.finish(kind)
        }
    }
}

/// First index, number of indexes and step of a slice, as `slice.indices`.
fn indexes(length: usize, [start, stop, step]: [Option<i128>; 3]) -> (usize, usize, i128) {
    let step = step.unwrap_or(1);
    let length = i128::try_from(length).unwrap_or(i128::MAX);
    let (low, high) = if step > 0 {
        (0, length)
    } else {
        (-1, length - 1)
    };
    let clamp = |bound: i128| {
        let bound = if bound < 0 {
            bound.saturating_add(length)
        } else {
            bound
        };
        bound.clamp(low, high)
    };
    let start = start.map_or(if step > 0 { low } else { high }, clamp);
    let stop = stop.map_or(if step > 0 { high } else { low }, clamp);
    let distance = if step > 0 { stop - start } else { start - stop };
    let size = step.saturating_abs();
    let count = if distance > 0 {
        (distance - 1) / size + 1
    } else {
        0
    };
    let number = |n: i128| usize::try_from(n).unwrap_or(0);
    (number(start), number(count), step)
}

fn selected(start: usize, count: usize, step: i128) -> impl Iterator<Item = usize> {
    let start = i128::try_from(start).unwrap_or(0);
    (0..count).map(move |at| {
        let offset = i128::try_from(at).unwrap_or(0).saturating_mul(step);
        usize::try_from(start.saturating_add(offset)).unwrap_or(0)
    })
}

/// A binary operator.
pub(super) fn binary(heap: &Heap, op: Binary, left: &Value, right: &Value) -> Outcome<Value> {
    for operand in [left, right] {
        let formats = op == Binary::Rem && matches!(left, Value::Str(_));
        if let Value::Undefined(name) = operand
            && !formats
        {
            return undefined_error(name.as_ref());
        }
    }
    match (op, left, right) {
        (Binary::Add, Value::Str(a), Value::Str(b)) => {
            let text = written(&heap.budget, |out| {
                out.push(a)?;
                out.push(b)
            })?;
            return Ok(Value::Str(text.into()));
        }
        (Binary::Add, Value::List(a), Value::List(b)) if a.kind.is_tuple() == b.kind.is_tuple() => {
            let mut items = heap.items();
            items.extend(&a.items)?;
            items.extend(&b.items)?;
            return items.finish(plain_kind(a));
        }
        (Binary::Rem, Value::Str(text), values) => {
            return Ok(Value::Str(percent(heap, text, values)?.into()));
        }
        (Binary::Mul, Value::Str(_) | Value::List(_), count) if count.int().is_some() => {
            return repeat(heap, left, count);
        }
        (Binary::Mul, count, Value::Str(_) | Value::List(_)) if count.int().is_some() => {
            return repeat(heap, right, count);
        }
        _ => {}
    }
    let number = match (left.int(), right.int()) {
        (Some(a), Some(b)) => integers(op, a, b)?,
        _ => match (left.float(), right.float()) {
            (Some(a), Some(b)) => Some(floats(op, a, b)?),
            _ => None,
        },
    };
    match number {
        Some(number) => Ok(number),
        None => fail(format_args!(
            "unsupported operands of {}: {} and {}",
            symbol(op),
            left.type_name(),
            right.type_name()
        )),
    }
}

fn symbol(op: Binary) -> &'static str {
    match op {
        Binary::Add => "+",
        Binary::Sub => "-",
        Binary::Mul => "*",
        Binary::Div => "/",
        Binary::FloorDiv => "//",
        Binary::Rem => "%",
        Binary::Pow => "**",
    }
}

fn plain_kind(list: &List) -> ListKind {
    match list.kind.is_tuple() {
        true => ListKind::Tuple,
        false => ListKind::List,
    }
}

/// A string or list, `count` times.
fn repeat(heap: &Heap, sequence: &Value, count: &Value) -> Outcome<Value> {
    let count = count.int().unwrap_or(0).max(0);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    match sequence {
        Value::List(list) => {
            let total = list.items.len().saturating_mul(count);
            heap.budget
                .charge(total.saturating_mul(size_of::<Value>()))?;
            let mut items = heap.items();
            for _ in 0..if list.items.is_empty() { 0 } else { count } {
                items.extend(&list.items)?;
            }
            items.finish(plain_kind(list))
        }
        text => {
            let text = text.str().unwrap_or_default();
            let text = written(&heap.budget, |out| match text.is_empty() {
                true => Ok(()),
                false => out.repeat(text, count),
            })?;
            Ok(Value::Str(text.into()))
        }
    }
}

fn integers(op: Binary, a: i128, b: i128) -> Outcome<Option<Value>> {
    let division = matches!(op, Binary::Div | Binary::FloorDiv | Binary::Rem);
    if division && b == 0 {
        return fail("division by zero");
    }
    let result =
        match op {
            Binary::Add => a.checked_add(b),
            Binary::Sub => a.checked_sub(b),
            Binary::Mul => a.checked_mul(b),
            #[expect(clippy::cast_precision_loss, reason = "as Python's float()")]
            Binary::Div => return Ok(Some(Value::Float(a as f64 / b as f64))),
            Binary::FloorDiv => {
                let inexact = a.checked_rem(b).is_some_and(|remainder| remainder != 0);
                let below = i128::from(inexact && (a < 0) != (b < 0));
                a.checked_div(b).map(|quotient| quotient - below)
            }
            Binary::Rem => a.checked_rem(b).map(|remainder| {
                match remainder != 0 && (remainder < 0) != (b < 0) {
                    true => remainder + b,
                    false => remainder,
                }
            }),
            Binary::Pow if b < 0 => {
                #[expect(clippy::cast_precision_loss, reason = "as Python's float()")]
                return floats(op, a as f64, b as f64).map(Some);
            }
            Binary::Pow => match (a, u32::try_from(b)) {
                (0 | 1, _) => Some(if b == 0 { 1 } else { a }),
                (-1, _) => Some(if b % 2 == 0 { 1 } else { -1 }),
                (a, Ok(b)) => a.checked_pow(b),
                (_, Err(_)) => None,
            },
        };
    match result {
        Some(number) => Ok(Some(Value::Int(number))),
        None => too_large(format_args!(
            "the result of {} exceeds 128 bits",
            symbol(op)
        )),
    }
}

fn floats(op: Binary, a: f64, b: f64) -> Outcome<Value> {
    let division = matches!(op, Binary::Div | Binary::FloorDiv | Binary::Rem);
    if division && b == 0.0 || op == Binary::Pow && a == 0.0 && b < 0.0 {
        return fail("division by zero");
    }
    let number = match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::FloorDiv => float_div_mod(a, b).0,
        Binary::Rem => float_div_mod(a, b).1,
        Binary::Pow => a.powf(b),
    };
    if op == Binary::Pow && number.is_infinite() && a.is_finite() && b.is_finite() {
        return too_large("the result of ** is too large");
    }
    if op == Binary::Pow && number.is_nan() && !a.is_nan() && !b.is_nan() {
        return fail("complex numbers are not supported");
    }
    Ok(Value::Float(number))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Plus,
    Minus,
}

/// `-value` and `+value`.
pub(super) fn signed(sign: Sign, value: &Value) -> Outcome<Value> {
    let negative = sign == Sign::Minus;
    match value {
        Value::Undefined(name) => undefined_error(name.as_ref()),
        Value::Float(number) => Ok(Value::Float(if negative { -number } else { *number })),
        other => match other.int() {
            Some(number) if negative => Ok(Value::Int(number.saturating_neg())),
            Some(number) => Ok(Value::Int(number)),
            None => fail(format_args!("bad operand of a sign: {}", other.type_name())),
        },
    }
}
