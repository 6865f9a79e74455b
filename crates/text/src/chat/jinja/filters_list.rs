//! Jinja's filters of lists, dicts and numbers.

use super::arguments::{CallArguments, flag, integer, required, size, text};
use super::attributes::{AttributePath, own_attribute, undefined_error};
use super::build::{Entries, tuple};
use super::compare::{compare, sorted};
use super::failure::{Outcome, fail};
use super::filters_text::text_filter;
use super::heap::Heap;
use super::methods::length_of;
use super::numbers::{parse_float, parse_int, round, truncated};
use super::ops::{binary, iterate};
use super::repr::{repr, str_of};
use super::syntax::Binary;
use super::value::{ListKind, Value, equal};
use std::cmp::Ordering;

/// Applies a filter; `None` if there is none of this name.
pub(super) fn list_filter(
    heap: &Heap,
    name: &str,
    value: &Value,
    arguments: CallArguments,
) -> Outcome<Option<Value>> {
    Ok(Some(match name {
        "length" | "count" => {
            arguments.none(name)?;
            length_of(heap, value)?
        }
        "default" | "d" => {
            let [default, boolean] = arguments.bind(name, ["default_value", "boolean"])?;
            let is_missing = value.is_undefined() || flag(boolean.as_ref()) && !value.is_true();
            match is_missing {
                true => default.unwrap_or(Value::Str("".into())),
                false => value.clone(),
            }
        }
        "first" | "last" => {
            arguments.none(name)?;
            ends(heap, name, value)?
        }
        "list" => {
            arguments.none(name)?;
            let mut items = heap.items();
            items.extend(&iterate(heap, value)?.items)?;
            items.list()?
        }
        "items" => {
            arguments.none(name)?;
            pairs(heap, value)?
        }
        "reverse" => {
            arguments.none(name)?;
            reverse(heap, value)?
        }
        "sort" => {
            let parameters = ["reverse", "case_sensitive", "attribute"];
            let [reverse, case, attribute] = arguments.bind(name, parameters)?;
            let keyed = keyed_multi(heap, value, attribute, Case::new(case))?;
            in_order(heap, keyed, reverse.as_ref())?
        }
        "dictsort" => dict_sort(heap, value, arguments)?,
        "unique" => {
            let [case, attribute] = arguments.bind(name, ["case_sensitive", "attribute"])?;
            unique(
                heap,
                keyed(heap, value, [attribute, None], Case::new(case))?,
            )?
        }
        "min" | "max" => {
            let [case, attribute] = arguments.bind(name, ["case_sensitive", "attribute"])?;
            let keyed = keyed(heap, value, [attribute, None], Case::new(case))?;
            extreme(heap, name, keyed)?
        }
        "sum" => sum(heap, value, arguments)?,
        "groupby" => group_by(heap, value, arguments)?,
        "batch" | "slice" => chunks(heap, name, value, arguments)?,
        "abs" | "round" | "int" | "float" | "filesizeformat" | "wordcount" => {
            number_filter(heap, name, value, arguments)?
        }
        "attr" => {
            let [name] = arguments.bind(name, ["name"])?;
            let name = text("attr", &required("attr", name)?)?;
            let found = own_attribute(heap, value, &name)?;
            found.unwrap_or(Value::Undefined(Some(name)))
        }
        "pprint" => {
            arguments.none(name)?;
            Value::Str(repr(heap, value)?.into())
        }
        _ => return text_filter(heap, name, value, arguments),
    }))
}

fn ends(heap: &Heap, name: &str, value: &Value) -> Outcome<Value> {
    if let Value::Str(text) = value {
        let c = match name {
            "first" => text.chars().next(),
            _ => text.chars().next_back(),
        };
        return match c {
            Some(c) => heap.text(c.encode_utf8(&mut [0; 4])),
            None => Ok(Value::Undefined(None)),
        };
    }
    let list = iterate(heap, value)?;
    let item = match name {
        "first" => list.items.first(),
        _ => list.items.last(),
    };
    Ok(item.cloned().unwrap_or(Value::Undefined(None)))
}

/// `dict.items()`; of an undefined value, an empty list.
fn pairs(heap: &Heap, value: &Value) -> Outcome<Value> {
    let mut items = heap.items();
    match value {
        Value::Undefined(_) => {}
        Value::Dict(dict) => {
            for (key, value) in dict.iter() {
                items.push(tuple(&heap.budget, [key.clone(), value.clone()])?)?;
            }
        }
        other => {
            return fail(format_args!(
                "items requires a dict, got {}",
                other.type_name()
            ));
        }
    }
    items.list()
}

fn reverse(heap: &Heap, value: &Value) -> Outcome<Value> {
    if let Value::Str(text) = value {
        heap.budget.charge(text.len())?;
        let reversed: String = text.chars().rev().collect();
        return Ok(Value::Str(reversed.into()));
    }
    let mut items = heap.items();
    items.extend(&iterate(heap, value)?.items)?;
    items.reverse();
    items.list()
}

/// A sort key and its item.
type Keyed = (Value, Value);

/// Whether keys of different case differ: `case_sensitive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Sensitive,
    Ignored,
}

impl Case {
    fn new(is_sensitive: Option<Value>) -> Self {
        match flag(is_sensitive.as_ref()) {
            true => Self::Sensitive,
            false => Self::Ignored,
        }
    }
}

/// The key of an item: strings are lower case if the case is ignored.
fn folded(heap: &Heap, key: Value, case: Case) -> Outcome<Value> {
    match &key {
        Value::Str(text) if case == Case::Ignored => heap.text(&text.to_lowercase()),
        _ => Ok(key),
    }
}

/// The items with a key each: the item, or an attribute of it with a default.
fn keyed(
    heap: &Heap,
    value: &Value,
    [attribute, default]: [Option<Value>; 2],
    case: Case,
) -> Outcome<Vec<Keyed>> {
    let attribute = attribute.filter(|attribute| !matches!(attribute, Value::None));
    let path = match attribute {
        Some(path) => Some(AttributePath::new(heap, &path)?),
        None => None,
    };
    let default = default.unwrap_or(Value::None);
    let list = iterate(heap, value)?;
    heap.budget
        .charge(list.items.len().saturating_mul(size_of::<Keyed>()))?;
    let mut out = Vec::new();
    for item in &list.items {
        let key = match &path {
            Some(path) => path.get(heap, item, &default)?,
            None => item.clone(),
        };
        out.push((folded(heap, key, case)?, item.clone()));
    }
    Ok(out)
}

/// The items with a list of keys each: attributes separated by commas.
fn keyed_multi(
    heap: &Heap,
    value: &Value,
    attribute: Option<Value>,
    case: Case,
) -> Outcome<Vec<Keyed>> {
    let Some(Value::Str(paths)) = &attribute else {
        return keyed(heap, value, [attribute, None], case);
    };
    let mut parsed = Vec::new();
    for path in paths.split(',') {
        heap.budget
            .charge(path.len() + size_of::<AttributePath>())?;
        parsed.push(AttributePath::new(heap, &heap.text(path)?)?);
    }
    let list = iterate(heap, value)?;
    heap.budget
        .charge(list.items.len().saturating_mul(size_of::<Keyed>()))?;
    let mut out = Vec::new();
    for item in &list.items {
        let mut keys = heap.items();
        for path in &parsed {
            let key = path.get(heap, item, &Value::None)?;
            keys.push(folded(heap, key, case)?)?;
        }
        out.push((keys.list()?, item.clone()));
    }
    Ok(out)
}

/// The items in the order of their keys.
fn in_order(heap: &Heap, mut keyed: Vec<Keyed>, reverse: Option<&Value>) -> Outcome<Value> {
    // Reversed twice, so that equal items keep their order.
    let is_reverse = flag(reverse);
    if is_reverse {
        keyed.reverse();
    }
    let mut keyed = sorted(heap, keyed, |(key, _)| key)?;
    if is_reverse {
        keyed.reverse();
    }
    let mut items = heap.items();
    for (_, item) in keyed {
        items.push(item)?;
    }
    items.list()
}

fn dict_sort(heap: &Heap, value: &Value, arguments: CallArguments) -> Outcome<Value> {
    let [case, by, reverse] = arguments.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let Value::Dict(dict) = value else {
        return fail(format_args!(
            "dictsort requires a dict, got {}",
            value.type_name()
        ));
    };
    let by_value = match by.as_ref().map(Value::str) {
        None | Some(Some("key")) => false,
        Some(Some("value")) => true,
        _ => return fail("dictsort: by is neither key nor value"),
    };
    heap.budget
        .charge(dict.len().saturating_mul(size_of::<Keyed>()))?;
    let mut keyed = Vec::new();
    for (key, value) in dict.iter() {
        let sort_key = if by_value { value } else { key };
        let sort_key = folded(heap, sort_key.clone(), Case::new(case.clone()))?;
        keyed.push((sort_key, tuple(&heap.budget, [key.clone(), value.clone()])?));
    }
    in_order(heap, keyed, reverse.as_ref())
}

fn unique(heap: &Heap, keyed: Vec<Keyed>) -> Outcome<Value> {
    let mut seen = Entries::new(&heap.budget);
    let mut items = heap.items();
    for (key, item) in keyed {
        let before = seen.len();
        seen.insert(key, Value::None)?;
        if seen.len() > before {
            items.push(item)?;
        }
    }
    items.list()
}

fn extreme(heap: &Heap, name: &str, keyed: Vec<Keyed>) -> Outcome<Value> {
    let wanted = match name {
        "min" => Ordering::Less,
        _ => Ordering::Greater,
    };
    let mut keyed = keyed.into_iter();
    let Some(mut best) = keyed.next() else {
        return Ok(Value::Undefined(None));
    };
    for candidate in keyed {
        if compare(heap, &candidate.0, &best.0)? == Some(wanted) {
            best = candidate;
        }
    }
    Ok(best.1)
}

fn sum(heap: &Heap, value: &Value, arguments: CallArguments) -> Outcome<Value> {
    let [attribute, start] = arguments.bind("sum", ["attribute", "start"])?;
    let mut total = start.unwrap_or(Value::Int(0));
    if total.str().is_some() {
        return fail("sum: cannot sum strings");
    }
    for (key, _) in keyed(heap, value, [attribute, None], Case::Sensitive)? {
        total = binary(heap, Binary::Add, &total, &key)?;
    }
    Ok(total)
}

fn group_by(heap: &Heap, value: &Value, arguments: CallArguments) -> Outcome<Value> {
    let parameters = ["attribute", "default", "case_sensitive"];
    let [attribute, default, case] = arguments.bind("groupby", parameters)?;
    let attribute = required("groupby", attribute)?;
    let path = AttributePath::new(heap, &attribute)?;
    let case = Case::new(case);
    let default = default.unwrap_or(Value::None);
    let keyed = keyed(heap, value, [Some(attribute), Some(default.clone())], case)?;
    let mut keyed = sorted(heap, keyed, |(key, _)| key)?.into_iter().peekable();
    let mut groups = heap.items();
    while let Some((key, first)) = keyed.next() {
        let shown = match case {
            Case::Sensitive => key.clone(),
            Case::Ignored => path.get(heap, &first, &default)?,
        };
        let mut items = heap.items();
        items.push(first)?;
        while let Some((next, _)) = keyed.peek() {
            if !equal(next, &key, &heap.budget)? {
                break;
            }
            if let Some((_, item)) = keyed.next() {
                items.push(item)?;
            }
        }
        let mut group = heap.items();
        group.push(shown)?;
        group.push(items.list()?)?;
        groups.push(group.finish(ListKind::Group)?)?;
    }
    groups.list()
}

/// `batch` and `slice`.
fn chunks(heap: &Heap, name: &str, value: &Value, arguments: CallArguments) -> Outcome<Value> {
    let parameters = match name {
        "batch" => ["linecount", "fill_with"],
        _ => ["slices", "fill_with"],
    };
    let [count, fill] = arguments.bind(name, parameters)?;
    let count = size(name, Some(&required(name, count)?), 0)?;
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    if count == 0 {
        return fail(format_args!("{name}: the count must be at least 1"));
    }
    let list = iterate(heap, value)?;
    let length = list.items.len();
    let mut chunks = heap.items();
    let number = match name {
        "batch" => length.div_ceil(count),
        _ => count,
    };
    let mut start = 0;
    for at in 0..number {
        let extra = usize::from(at < length % count);
        let size = match name {
            "batch" => count.min(length - start),
            _ => length / count + extra,
        };
        let mut chunk = heap.items();
        chunk.extend(&list.items[start..start + size])?;
        start += size;
        if let Some(fill) = &fill {
            let missing = match name {
                "batch" => count - size,
                _ => 1 - extra,
            };
            for _ in 0..missing {
                chunk.push(fill.clone())?;
            }
        }
        chunks.push(chunk.list()?)?;
    }
    chunks.list()
}

fn number_filter(
    heap: &Heap,
    name: &str,
    value: &Value,
    arguments: CallArguments,
) -> Outcome<Value> {
    match name {
        "abs" => {
            arguments.none(name)?;
            match (value, value.int()) {
                (_, Some(number)) => Ok(Value::Int(number.saturating_abs())),
                (Value::Float(number), _) => Ok(Value::Float(number.abs())),
                _ => fail(format_args!("bad operand of abs: {}", value.type_name())),
            }
        }
        "round" => {
            let [precision, method] = arguments.bind(name, ["precision", "method"])?;
            let precision = integer(name, precision.as_ref(), 0)?;
            rounded(value, precision, method.as_ref().and_then(Value::str))
        }
        "int" => {
            let [default, base] = arguments.bind(name, ["default", "base"])?;
            let base = integer(name, base.as_ref(), 10)?;
            let number = to_int(value, u32::try_from(base).unwrap_or(1))?;
            Ok(number.map_or(default.unwrap_or(Value::Int(0)), Value::Int))
        }
        "float" => {
            let [default] = arguments.bind(name, ["default"])?;
            let number = match value {
                Value::Undefined(name) => {
                    return undefined_error(name.as_ref());
                }
                Value::Str(text) => parse_float(text),
                other => other.float(),
            };
            Ok(number.map_or(default.unwrap_or(Value::Float(0.0)), Value::Float))
        }
        "filesizeformat" => {
            let [binary] = arguments.bind(name, ["binary"])?;
            file_size(
                value,
                if flag(binary.as_ref()) {
                    1024.0
                } else {
                    1000.0
                },
            )
        }
        _ => {
            arguments.none(name)?;
            let text = str_of(heap, value)?;
            let is_other = |c: char| !c.is_alphanumeric() && c != '_';
            let words = text.split(is_other).filter(|word| !word.is_empty()).count();
            Ok(Value::Int(i128::try_from(words).unwrap_or(i128::MAX)))
        }
    }
}

/// `int(value)` of the filter: an integer, or that of a number in a string.
fn to_int(value: &Value, base: u32) -> Outcome<Option<i128>> {
    match value {
        Value::Undefined(name) => undefined_error(name.as_ref()),
        Value::Str(text) => {
            if let Some(number) = parse_int(text, base)? {
                return Ok(Some(number));
            }
            match parse_float(text).filter(|number| number.is_finite()) {
                Some(number) => truncated(number).map(Some),
                None => Ok(None),
            }
        }
        Value::Float(number) if number.is_finite() => truncated(*number).map(Some),
        other => Ok(other.int()),
    }
}

/// `round(value, precision, method)`.
fn rounded(value: &Value, precision: i128, method: Option<&str>) -> Outcome<Value> {
    let method = method.unwrap_or("common");
    let power = i32::try_from(precision).unwrap_or(i32::MAX);
    let Some(number) = value.float() else {
        return fail(format_args!(
            "round requires a number, got {}",
            value.type_name()
        ));
    };
    let scale = 10f64.powi(power);
    match (method, value.int()) {
        ("common", Some(number)) if precision >= 0 => Ok(Value::Int(number)),
        ("common", Some(number)) => {
            let Some(scale) = u32::try_from(-precision)
                .ok()
                .and_then(|p| 10i128.checked_pow(p))
            else {
                return Ok(Value::Int(0));
            };
            let below = number.div_euclid(scale);
            let twice = number.rem_euclid(scale) * 2;
            let up = twice > scale || twice == scale && below % 2 != 0;
            Ok(Value::Int((below + i128::from(up)) * scale))
        }
        ("common", None) => Ok(Value::Float(round(number, precision))),
        ("ceil", _) => Ok(Value::Float((number * scale).ceil() / scale)),
        ("floor", _) => Ok(Value::Float((number * scale).floor() / scale)),
        _ => fail("round: the method is not common, ceil or floor"),
    }
}

fn file_size(value: &Value, base: f64) -> Outcome<Value> {
    let number = match value {
        Value::Str(text) => parse_float(text),
        other => other.float(),
    };
    let Some(bytes) = number else {
        return fail("filesizeformat requires a number");
    };
    if bytes == 1.0 {
        return Ok(Value::Str("1 Byte".into()));
    }
    if bytes < base {
        return Ok(Value::Str(format!("{} Bytes", truncated(bytes)?).into()));
    }
    let infix = if base > 1000.0 { "i" } else { "" };
    let mut unit = base;
    for prefix in "KMGTPEZY".chars() {
        unit *= base;
        if bytes < unit || prefix == 'Y' {
            let prefix = if infix.is_empty() && prefix == 'K' {
                'k'
            } else {
                prefix
            };
            let text = format!("{:.1} {prefix}{infix}B", base * bytes / unit);
            return Ok(Value::Str(text.into()));
        }
    }
    fail("filesizeformat: the number is not finite")
}
