//! `tojson`: Python's `json.dumps`, as `transformers` defines the filter, without HTML escapes.

use super::compare::sorted;
use super::failure::{Outcome, fail};
use super::heap::Heap;
use super::repr::float;
use super::sink::{Sink, written};
use super::value::{ListKind, Value};

/// Options of `json.dumps`.
#[derive(Clone, Debug)]
pub(super) struct Json {
    pub(super) escape: Escape,
    /// Indentation of each level; `None` writes a single line.
    pub(super) indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) order: Order,
}

/// Which characters of a string are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// Those that JSON requires.
    Minimal,
    /// Also all non-ASCII characters: `ensure_ascii`.
    NonAscii,
}

/// Order of the keys of a dict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Insertion,
    /// `sort_keys`.
    Sorted,
}

impl Json {
    /// `json.dumps(value, ...)`.
    pub(super) fn dumps(&self, heap: &Heap, value: &Value) -> Outcome<String> {
        written(&heap.budget, |out| self.level(heap, value, out, 0))
    }

    fn level(&self, heap: &Heap, value: &Value, out: &mut Sink<'_>, depth: usize) -> Outcome<()> {
        heap.budget.work(1)?;
        match value {
            Value::None => out.push("null"),
            Value::Bool(true) => out.push("true"),
            Value::Bool(false) => out.push("false"),
            Value::Int(number) => out.format(format_args!("{number}")),
            Value::Float(number) => out.push(&json_float(*number)),
            Value::Str(text) => self.string(text, out),
            Value::List(list) if list.kind == ListKind::List || list.kind.is_tuple() => self
                .container(out, depth, ["[", "]"], list.items.iter(), |item, out| {
                    self.level(heap, item, out, depth + 1)
                }),
            Value::Dict(dict) => {
                let mut entries: Vec<_> = dict.iter().collect();
                if self.order == Order::Sorted {
                    entries = sorted(heap, entries, |(key, _)| key)?;
                }
                self.container(out, depth, ["{", "}"], entries.into_iter(), |entry, out| {
                    let (key, value) = entry;
                    self.key(key, out)?;
                    out.push(&self.key_separator)?;
                    self.level(heap, value, out, depth + 1)
                })
            }
            other => fail(format_args!(
                "an object of type {} is not JSON serializable",
                other.type_name()
            )),
        }
    }

    /// Writes a list or a dict, whose items `write` writes.
    fn container<T>(
        &self,
        out: &mut Sink<'_>,
        depth: usize,
        [open, close]: [&str; 2],
        items: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(T, &mut Sink<'_>) -> Outcome<()>,
    ) -> Outcome<()> {
        let line = |depth: usize, out: &mut Sink<'_>| match &self.indent {
            Some(indent) => {
                out.push("\n")?;
                out.repeat(indent, depth)
            }
            None => Ok(()),
        };
        let is_empty = items.len() == 0;
        out.push(open)?;
        for (at, item) in items.enumerate() {
            out.push(if at == 0 { "" } else { &self.item_separator })?;
            line(depth + 1, out)?;
            write(item, out)?;
        }
        if !is_empty {
            line(depth, out)?;
        }
        out.push(close)
    }

    fn key(&self, key: &Value, out: &mut Sink<'_>) -> Outcome<()> {
        let text = match key {
            Value::Str(text) => return self.string(text, out),
            Value::None => "null".to_string(),
            Value::Bool(value) => value.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) => json_float(*number),
            other => {
                return fail(format_args!(
                    "a key of a JSON object cannot have the type {}",
                    other.type_name()
                ));
            }
        };
        self.string(&text, out)
    }

    fn string(&self, text: &str, out: &mut Sink<'_>) -> Outcome<()> {
        let ascii = self.escape == Escape::NonAscii;
        let is_plain = |c: char| c >= ' ' && c != '"' && c != '\\' && (!ascii || c <= '~');
        out.push("\"")?;
        let mut rest = text;
        while let Some(special) = rest.find(|c| !is_plain(c)) {
            out.push(&rest[..special])?;
            let c = rest[special..].chars().next().unwrap_or_default();
            rest = &rest[special + c.len_utf8()..];
            match c {
                '"' => out.push("\\\"")?,
                '\\' => out.push("\\\\")?,
                '\n' => out.push("\\n")?,
                '\r' => out.push("\\r")?,
                '\t' => out.push("\\t")?,
                '\u{8}' => out.push("\\b")?,
                '\u{c}' => out.push("\\f")?,
                c => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.format(format_args!("\\u{unit:04x}"))?;
                    }
                }
            }
        }
        out.push(rest)?;
        out.push("\"")
    }
}

fn json_float(number: f64) -> String {
    match number {
        number if number.is_nan() => "NaN".to_string(),
        f64::INFINITY => "Infinity".to_string(),
        f64::NEG_INFINITY => "-Infinity".to_string(),
        number => float(number),
    }
}
