//! Filters, tests and methods that replace those of minijinja: with resource limits and Python's
//! results.

use super::budget::{Budget, template_error};
use super::python::{self, Escape, Json};
use super::values::ValueConverter;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use std::fmt::Write;
use std::sync::Arc;
use tabla_core::error::ErrorKind as Kind;

/// Filters of minijinja that templates do not use and the budget does not cover.
const REMOVED: &[&str] = &[
    "batch", "slice", "format", "pprint", "chain", "zip", "sum", "groupby",
];

/// Maximum indentation in columns.
const INDENT_MAX: usize = 64;
/// Maximum number of digits of a width in a format string.
const FORMAT_DIGITS_MAX: usize = 3;

/// Registers the filters, tests and methods.
pub(super) fn add(env: &mut Environment<'static>, budget: &Arc<Budget>) {
    for name in REMOVED {
        env.remove_filter(name);
    }
    let b = Arc::clone(budget);
    env.add_filter(
        "tojson",
        move |value: &Value, args: Rest<Value>, options: Kwargs| {
            to_json(&b, value, &args, &options)
        },
    );
    env.add_filter("from_json", |text: &str| {
        let json: serde_json::Value = serde_json::from_str(text)
            .map_err(|e| template_error(Kind::Argument, &format!("from_json: {e}")))?;
        ValueConverter::new(&str::to_string)
            .convert(&json)
            .map_err(|e| template_error(e.kind(), e.message()))
    });
    let b = Arc::clone(budget);
    env.add_filter("string", move |value: &Value| str_of(&b, value));
    let b = Arc::clone(budget);
    env.add_filter("join", move |items: &Value, between: Option<&str>| {
        join(&b, between.unwrap_or_default(), items)
    });
    let b = Arc::clone(budget);
    env.add_filter("replace", move |text: &Value, from: &Value, to: &Value| {
        let [text, from, to] = [text, from, to].map(|value| str_of(&b, value));
        replace(&b, &text?, &from?, &to?)
    });
    let b = Arc::clone(budget);
    env.add_filter(
        "indent",
        move |text: &str, args: Rest<Value>, options: Kwargs| indent(&b, text, &args, &options),
    );
    let b = Arc::clone(budget);
    env.add_filter(
        "map",
        move |state: &mut State<'_, '_>, items: &Value, args: Rest<Value>, options: Kwargs| {
            map(&b, state, items, &args, &options)
        },
    );
    let b = Arc::clone(budget);
    env.set_unknown_method_callback(move |state, value, method, args| {
        call_method(&b, state, value, method, args)
    });
    // In Python None is not iterable, and strings and dicts are sequences.
    env.add_test("iterable", |value: &Value| {
        !value.is_none() && value.try_iter().is_ok()
    });
    env.add_test("sequence", |value: &Value| {
        let kind = value.kind();
        value.is_undefined() || matches!(kind, ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
}

/// Calls Python's methods of strings, lists and dicts.
fn call_method(
    budget: &Budget,
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.as_str(), method, args) {
        (Some(between), "join", [items]) => join(budget, between, items).map(Value::from),
        (Some(text), "replace", [from, to]) => {
            let (from, to) = (str_of(budget, from)?, str_of(budget, to)?);
            replace(budget, text, &from, &to).map(Value::from)
        }
        (Some(text), "format", args) => {
            check_format(budget, text, args)?;
            pycompat::unknown_method_callback(state, value, method, args)
        }
        _ => pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// `str(value)`.
fn str_of(budget: &Budget, value: &Value) -> Result<String, Error> {
    budget.text(|out| python::write_str(value, out))
}

fn join(budget: &Budget, between: &str, items: &Value) -> Result<String, Error> {
    let items = items.try_iter()?;
    budget.text(|out| {
        for (at, item) in items.enumerate() {
            out.write_str(if at == 0 { "" } else { between })?;
            python::write_str(&item, out)?;
        }
        Ok(())
    })
}

fn replace(budget: &Budget, text: &str, from: &str, to: &str) -> Result<String, Error> {
    let times = text.matches(from).count();
    budget.charge(text.len().saturating_add(times.saturating_mul(to.len())))?;
    Ok(text.replace(from, to))
}

/// Charges the maximum size of a formatted string.
fn check_format(budget: &Budget, text: &str, args: &[Value]) -> Result<(), Error> {
    let digits = text
        .split(|c: char| !c.is_ascii_digit())
        .map(str::len)
        .max();
    if digits.unwrap_or(0) > FORMAT_DIGITS_MAX {
        return Err(template_error(
            Kind::TooLarge,
            "format: a width has more than 3 digits",
        ));
    }
    let fields = text.matches('{').count();
    for arg in args {
        let bytes = str_of(budget, arg)?.len();
        budget.charge(bytes.saturating_add(1000).saturating_mul(fields))?;
    }
    Ok(())
}

/// Jinja2's `indent(width=4, first=false, blank=false)`.
fn indent(budget: &Budget, text: &str, args: &[Value], options: &Kwargs) -> Result<String, Error> {
    let option = |at: usize, name: &str| match args.get(at) {
        Some(value) => Ok(Some(value.clone())),
        None => options.get::<Option<Value>>(name),
    };
    let width = option(0, "width")?.unwrap_or_else(|| Value::from(4));
    let [first, blank] =
        [option(1, "first")?, option(2, "blank")?].map(|v| v.is_some_and(|v| v.is_true()));
    options.assert_all_used()?;
    let space = match width.as_str() {
        Some(space) => space.to_string(),
        None => " ".repeat(usize::try_from(width)?.min(INDENT_MAX + 1)),
    };
    if space.len() > INDENT_MAX {
        let message = format!("indent: the width exceeds the limit of {INDENT_MAX} columns");
        return Err(template_error(Kind::TooLarge, &message));
    }
    budget.text(|out| {
        for (at, line) in text.split('\n').enumerate() {
            out.write_str(if at == 0 { "" } else { "\n" })?;
            if if at == 0 {
                first
            } else {
                blank || !line.is_empty()
            } {
                out.write_str(&space)?;
            }
            out.write_str(line)?;
        }
        Ok(())
    })
}

/// `map(attribute=name, default=value)` and `map(filter, ...)`.
fn map(
    budget: &Budget,
    state: &mut State<'_, '_>,
    items: &Value,
    args: &[Value],
    options: &Kwargs,
) -> Result<Value, Error> {
    let attribute: Option<String> = options.get("attribute")?;
    let default: Option<Value> = options.get("default")?;
    options.assert_all_used()?;
    let mut out = Vec::new();
    for item in items.try_iter()? {
        let new = match (&attribute, args) {
            (Some(path), []) => {
                let attribute =
                    path.split('.')
                        .try_fold(item, |value, name| match name.parse::<i64>() {
                            Ok(index) => value.get_item(&Value::from(index)),
                            Err(_) => value.get_attr(name),
                        })?;
                match &default {
                    Some(default) if attribute.is_undefined() => default.clone(),
                    _ => attribute,
                }
            }
            (None, [filter, rest @ ..]) if filter.as_str().is_some() => {
                let args: Vec<Value> = std::iter::once(item).chain(rest.iter().cloned()).collect();
                state.apply_filter(filter.as_str().unwrap_or_default(), &args)?
            }
            _ => {
                let message = "map: expected a filter or an attribute";
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        };
        budget.charge_value(&new)?;
        out.push(new);
    }
    Ok(Value::from(out))
}

/// `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, as
/// `transformers` defines it: without HTML escapes.
fn to_json(
    budget: &Budget,
    value: &Value,
    args: &[Value],
    options: &Kwargs,
) -> Result<String, Error> {
    let option = |at: usize, name: &str| match args.get(at) {
        Some(value) => Ok(value.clone()),
        None => options
            .get::<Option<Value>>(name)
            .map(Option::unwrap_or_default),
    };
    let [ascii, indent, separators, sorted] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ascii, indent, separators, sorted] = [
        option(0, ascii)?,
        option(1, indent)?,
        option(2, separators)?,
        option(3, sorted)?,
    ];
    options.assert_all_used()?;
    let indent = match indent.kind() {
        ValueKind::None | ValueKind::Undefined => None,
        ValueKind::String => Some(indent.to_string()),
        _ => Some(" ".repeat(usize::try_from(indent)?.min(INDENT_MAX + 1))),
    };
    if indent
        .as_ref()
        .is_some_and(|indent| indent.len() > INDENT_MAX)
    {
        let message = format!("tojson: the indent exceeds the limit of {INDENT_MAX} columns");
        return Err(template_error(Kind::TooLarge, &message));
    }
    let separator = |at: usize, default: &str| match separators.get_item(&Value::from(at)) {
        Ok(separator) if separator.as_str().is_some() => separator.to_string(),
        _ => default.to_string(),
    };
    let json = Json {
        escape: if ascii.is_true() {
            Escape::NonAscii
        } else {
            Escape::Minimal
        },
        // With an indent Python's item separator has no space.
        item_separator: separator(0, if indent.is_some() { "," } else { ", " }),
        key_separator: separator(1, ": "),
        indent,
        sort_keys: sorted.is_true(),
    };
    budget.text(|out| json.write(value, out))
}
