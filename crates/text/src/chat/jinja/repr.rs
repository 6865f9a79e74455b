//! Python's text forms of values: `str` and `repr`.

use super::failure::Outcome;
use super::heap::Heap;
use super::sink::{Sink, written};
use super::value::{ListKind, Value, too_deep};

/// Maximum depth of nested namespaces and lists.
const DEPTH_MAX: usize = 400;

/// `str(value)`.
pub(super) fn str_of(heap: &Heap, value: &Value) -> Outcome<String> {
    written(&heap.budget, |out| write_str(heap, value, out))
}

/// `repr(value)`.
pub(super) fn repr(heap: &Heap, value: &Value) -> Outcome<String> {
    written(&heap.budget, |out| write_repr(heap, value, out))
}

/// Writes `str(value)`; an undefined value is empty.
pub(super) fn write_str(heap: &Heap, value: &Value, out: &mut Sink<'_>) -> Outcome<()> {
    match value {
        Value::Str(text) => out.push(text),
        Value::Undefined(_) => Ok(()),
        other => write_repr(heap, other, out),
    }
}

pub(super) fn write_repr(heap: &Heap, value: &Value, out: &mut Sink<'_>) -> Outcome<()> {
    level(heap, value, out, DEPTH_MAX)
}

fn level(heap: &Heap, value: &Value, out: &mut Sink<'_>, depth: usize) -> Outcome<()> {
    let Some(depth) = depth.checked_sub(1) else {
        return too_deep();
    };
    heap.budget.work(1)?;
    match value {
        Value::Undefined(_) => out.push("Undefined"),
        Value::None => out.push("None"),
        Value::Bool(true) => out.push("True"),
        Value::Bool(false) => out.push("False"),
        Value::Int(number) => out.format(format_args!("{number}")),
        Value::Float(number) => out.push(&float(*number)),
        Value::Str(text) => write_quoted(text, out),
        Value::List(list) => {
            let (open, close) = match list.kind {
                ListKind::List => ("[", "]"),
                ListKind::Tuple | ListKind::Group => ("(", ")"),
                ListKind::Keys => ("dict_keys([", "])"),
                ListKind::Values => ("dict_values([", "])"),
                ListKind::Items => ("dict_items([", "])"),
            };
            out.push(open)?;
            for (at, item) in list.items.iter().enumerate() {
                out.push(if at == 0 { "" } else { ", " })?;
                level(heap, item, out, depth)?;
            }
            let single_tuple = list.kind.is_tuple() && list.items.len() == 1;
            out.push(if single_tuple { "," } else { "" })?;
            out.push(close)
        }
        Value::Dict(dict) => {
            let entries = dict.iter().map(|(key, value)| (key, value));
            write_dict(heap, entries, out, depth)
        }
        Value::Range(range) => {
            out.format(format_args!("range({}, {}", range.start, range.stop))?;
            match range.step {
                1 => out.push(")"),
                step => out.format(format_args!(", {step})")),
            }
        }
        Value::Namespace(number) => {
            let attributes = heap.attributes(*number);
            let pairs: Vec<_> = attributes
                .into_iter()
                .map(|(name, value)| (Value::Str(name), value))
                .collect();
            out.push("<Namespace ")?;
            write_dict(heap, pairs.iter().map(|(k, v)| (k, v)), out, depth)?;
            out.push(">")
        }
        Value::Macro(value) => {
            out.push("<Macro ")?;
            write_quoted(&value.definition.name, out)?;
            out.push(">")
        }
        other => out.format(format_args!("<{}>", other.type_name())),
    }
}

fn write_dict<'v>(
    heap: &Heap,
    entries: impl Iterator<Item = (&'v Value, &'v Value)>,
    out: &mut Sink<'_>,
    depth: usize,
) -> Outcome<()> {
    out.push("{")?;
    for (at, (key, value)) in entries.enumerate() {
        out.push(if at == 0 { "" } else { ", " })?;
        level(heap, key, out, depth)?;
        out.push(": ")?;
        level(heap, value, out, depth)?;
    }
    out.push("}")
}

/// Writes `repr` of a string: in single quotes, unless it contains single but no double quotes.
pub(super) fn write_quoted(text: &str, out: &mut Sink<'_>) -> Outcome<()> {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push_char(quote)?;
    for c in text.chars() {
        match c {
            '\\' => out.push("\\\\")?,
            '\n' => out.push("\\n")?,
            '\r' => out.push("\\r")?,
            '\t' => out.push("\\t")?,
            c if c == quote => out.format(format_args!("\\{c}"))?,
            c if is_printable(c) => out.push_char(c)?,
            c => match u32::from(c) {
                code @ ..=0xff => out.format(format_args!("\\x{code:02x}"))?,
                code @ ..=0xffff => out.format(format_args!("\\u{code:04x}"))?,
                code => out.format(format_args!("\\U{code:08x}"))?,
            },
        }
    }
    out.push_char(quote)
}

/// `str.isprintable` of a character. Plane 16 is printable here: it has the escapes of special
/// tokens.
pub(super) fn is_printable(c: char) -> bool {
    !c.is_control()
        && (c == ' ' || !c.is_whitespace())
        && !matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}'
            | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' | '\u{f0000}'..='\u{fffff}')
}

/// `repr` of a float: the shortest digits that round-trip, with an exponent below 1e-4 and from
/// 1e16.
pub(super) fn float(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() {
        let name = if number.is_nan() { "nan" } else { "inf" };
        let sign = if number < 0.0 { "-" } else { "" };
        return format!("{sign}{name}");
    }
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        return python_exponent(&format!("{number:e}"));
    }
    format!("{number:?}")
}

/// Changes the exponent of a number in Rust's notation to at least two digits and a sign.
pub(super) fn python_exponent(text: &str) -> String {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}
