//! Python's text forms of values: `str`, `repr` and `json.dumps`.
//!
//! Templates are written for Jinja2, where `{{ x }}` is `str(x)`. In `transformers`, `tojson` is
//! `json.dumps`.

use minijinja::Value;
use minijinja::value::ValueKind;
use std::fmt::{self, Write};

/// Maximum nesting depth of values.
const DEPTH_MAX: usize = 100;
/// Error message for a write that fails although the budget is sufficient.
pub(super) const TOO_DEEP: &str = "a value is nested deeper than 100 levels";

/// Writes `str(value)`; an undefined value is empty, as in Jinja2.
pub(super) fn write_str(value: &Value, out: &mut dyn Write) -> fmt::Result {
    match value.as_str() {
        Some(text) => out.write_str(text),
        None => write_repr(value, out, DEPTH_MAX),
    }
}

fn write_repr(value: &Value, out: &mut dyn Write, depth: usize) -> fmt::Result {
    let depth = depth.checked_sub(1).ok_or(fmt::Error)?;
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::None => out.write_str("None"),
        ValueKind::Bool => out.write_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(value, out),
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() {
                ('(', ')')
            } else {
                ('[', ']')
            };
            out.write_char(open)?;
            for (at, item) in items(value).enumerate() {
                out.write_str(if at == 0 { "" } else { ", " })?;
                write_repr(&item, out, depth)?;
            }
            if value.is_tuple() && value.len() == Some(1) {
                out.write_char(',')?;
            }
            out.write_char(close)
        }
        ValueKind::Map => {
            out.write_char('{')?;
            for (at, key) in items(value).enumerate() {
                out.write_str(if at == 0 { "" } else { ", " })?;
                write_repr(&key, out, depth)?;
                out.write_str(": ")?;
                write_repr(&value.get_item(&key).unwrap_or_default(), out, depth)?;
            }
            out.write_char('}')
        }
        _ => write!(out, "{value}"),
    }
}

/// The items of a list or the keys of a map; empty for other values.
fn items(value: &Value) -> impl Iterator<Item = Value> {
    value.try_iter().into_iter().flatten()
}

/// Writes `repr` of a string: in single quotes, unless it contains single but no double quotes.
fn write_quoted(text: &str, out: &mut dyn Write) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.write_char(quote)?;
    for c in text.chars() {
        match c {
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            c if c == quote => write!(out, "\\{c}")?,
            c if c.is_control() && u32::from(c) < 0x100 => write!(out, "\\x{:02x}", u32::from(c))?,
            c => out.write_char(c)?,
        }
    }
    out.write_char(quote)
}

/// Writes a number in Python's form: the shortest digits that round-trip, with an exponent below
/// 1e-4 and from 1e16.
fn write_number(value: &Value, out: &mut dyn Write) -> fmt::Result {
    if value.is_integer() {
        return write!(out, "{value}");
    }
    let Ok(number) = f64::try_from(value.clone()) else {
        return write!(out, "{value}");
    };
    let size = number.abs();
    if !number.is_finite() {
        let name = if number.is_nan() { "nan" } else { "inf" };
        write!(out, "{}{name}", if number < 0.0 { "-" } else { "" })
    } else if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        write!(out, "{digits}e{sign}{exponent:0>2}")
    } else {
        write!(out, "{number:?}")
    }
}

/// Options of `json.dumps`.
#[derive(Clone, Debug)]
pub(super) struct Json {
    pub(super) escape: Escape,
    /// Indentation of each level; `None` writes a single line.
    pub(super) indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) sort_keys: bool,
}

/// Which characters of a string are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// Those that JSON requires.
    Minimal,
    /// Also all non-ASCII characters: `ensure_ascii`.
    NonAscii,
}

impl Json {
    /// Writes `json.dumps(value, ...)`.
    pub(super) fn write(&self, value: &Value, out: &mut dyn Write) -> fmt::Result {
        self.level(value, out, 0)
    }

    fn level(&self, value: &Value, out: &mut dyn Write, depth: usize) -> fmt::Result {
        if depth >= DEPTH_MAX {
            return Err(fmt::Error);
        }
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => out.write_str("null"),
            ValueKind::Bool => out.write_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => number(value, out),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
                self.container(value, out, depth)
            }
            _ => self.string(&value.to_string(), out),
        }
    }

    /// Writes a list or a map.
    fn container(&self, value: &Value, out: &mut dyn Write, depth: usize) -> fmt::Result {
        let is_map = value.kind() == ValueKind::Map;
        let mut items: Vec<Value> = items(value).collect();
        if is_map && self.sort_keys {
            items.sort();
        }
        let line = |depth: usize, out: &mut dyn Write| match &self.indent {
            Some(indent) => {
                out.write_char('\n')?;
                (0..depth).try_for_each(|_| out.write_str(indent))
            }
            None => Ok(()),
        };
        out.write_char(if is_map { '{' } else { '[' })?;
        for (at, item) in items.iter().enumerate() {
            out.write_str(if at == 0 { "" } else { &self.item_separator })?;
            line(depth + 1, out)?;
            if is_map {
                let key = item
                    .as_str()
                    .map_or_else(|| item.to_string(), str::to_string);
                self.string(&key, out)?;
                out.write_str(&self.key_separator)?;
                self.level(&value.get_item(item).unwrap_or_default(), out, depth + 1)?;
            } else {
                self.level(item, out, depth + 1)?;
            }
        }
        if !items.is_empty() {
            line(depth, out)?;
        }
        out.write_char(if is_map { '}' } else { ']' })
    }

    fn string(&self, text: &str, out: &mut dyn Write) -> fmt::Result {
        let ascii = self.escape == Escape::NonAscii;
        out.write_char('"')?;
        for c in text.chars() {
            match c {
                '"' => out.write_str("\\\"")?,
                '\\' => out.write_str("\\\\")?,
                '\n' => out.write_str("\\n")?,
                '\r' => out.write_str("\\r")?,
                '\t' => out.write_str("\\t")?,
                '\u{8}' => out.write_str("\\b")?,
                '\u{c}' => out.write_str("\\f")?,
                c if c < ' ' || ascii && !(' '..='~').contains(&c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(out, "\\u{unit:04x}")?;
                    }
                }
                c => out.write_char(c)?,
            }
        }
        out.write_char('"')
    }
}

/// Writes a number as `json.dumps` does.
fn number(value: &Value, out: &mut dyn Write) -> fmt::Result {
    match f64::try_from(value.clone()) {
        Ok(number) if number.is_nan() => out.write_str("NaN"),
        Ok(number) if number.is_infinite() => out.write_str(if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }),
        _ => write_number(value, out),
    }
}
