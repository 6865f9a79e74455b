//! Python's formatting: `text % values` and `text.format(values)`.

use super::arguments::CallArguments;
use super::attributes::{attribute, item};
use super::failure::{Outcome, fail, too_large};
use super::format_spec::{Spec, format_value};
use super::heap::Heap;
use super::numbers::truncated;
use super::repr::{repr, str_of};
use super::sink::{Sink, written};
use super::value::Value;

/// Maximum nesting depth of fields in fields.
const DEPTH_MAX: usize = 2;

/// `text % values`.
pub(super) fn percent(heap: &Heap, text: &str, values: &Value) -> Outcome<String> {
    let mut rest = match values {
        Value::List(list) if list.kind.is_tuple() => list.items.iter(),
        single => std::slice::from_ref(single).iter(),
    };
    let is_single = !matches!(values, Value::List(list) if list.kind.is_tuple());
    let mut by_name = matches!(values, Value::Dict(_));
    let out = written(&heap.budget, |out| {
        let mut text = text;
        while let Some((plain, tail)) = text.split_once('%') {
            out.push(plain)?;
            let (mut field, after) = Field::parse(tail)?;
            text = after;
            for star in [&mut field.spec.width, &mut field.spec.precision] {
                if *star == Some(usize::MAX) {
                    *star = Some(star_value(rest.next())?);
                }
            }
            let value = match (&field.key, values) {
                _ if field.kind == '%' => {
                    out.push("%")?;
                    continue;
                }
                (Some(key), Value::Dict(dict)) => {
                    by_name = true;
                    match dict.get_str(key) {
                        Some(value) => value.clone(),
                        None => return fail(format_args!("format: missing key {key:.40}")),
                    }
                }
                (Some(_), _) => return fail("format requires a mapping"),
                (None, _) => match rest.next() {
                    Some(value) => value.clone(),
                    None => return fail("not enough arguments for format string"),
                },
            };
            field.write(heap, &value, out)?;
        }
        out.push(text)
    })?;
    let unused = rest.next().is_some();
    let may_be_unused = by_name
        || is_single
            && matches!(
                values,
                Value::List(_) | Value::Dict(_) | Value::Undefined(_)
            );
    if unused && !may_be_unused {
        return fail("not all arguments converted during string formatting");
    }
    Ok(out)
}

fn star_value(value: Option<&Value>) -> Outcome<usize> {
    match value.and_then(Value::int).map(usize::try_from) {
        Some(Ok(width)) => Ok(width),
        _ => fail("format: * requires an integer of at least 0"),
    }
}

/// A field of `%`, such as `%(name)-5.2f`.
struct Field<'t> {
    key: Option<&'t str>,
    spec: Spec,
    kind: char,
}

impl<'t> Field<'t> {
    /// Parses a field without its `%`. Returns it and the text after it.
    fn parse(text: &'t str) -> Outcome<(Self, &'t str)> {
        let (mut rest, mut key) = (text, None);
        if let Some(tail) = rest.strip_prefix('(') {
            let Some((name, tail)) = tail.split_once(')') else {
                return fail("format: incomplete format key");
            };
            (key, rest) = (Some(name), tail);
        }
        let mut spec = Spec::default();
        loop {
            match rest.as_bytes().first() {
                Some(b'-') => spec.align = Some('<'),
                Some(b'+') => spec.sign = '+',
                Some(b' ') if spec.sign == '-' => spec.sign = ' ',
                Some(b' ') => {}
                Some(b'#') => spec.alternate = true,
                Some(b'0') if spec.align.is_none() => (spec.fill, spec.align) = ('0', Some('=')),
                Some(b'0') => {}
                _ => break,
            }
            rest = &rest[1..];
        }
        if spec.align == Some('<') {
            spec.fill = ' ';
        }
        spec.width = number(&mut rest)?;
        if let Some(tail) = rest.strip_prefix('.') {
            rest = tail;
            spec.precision = Some(number(&mut rest)?.unwrap_or(0));
        }
        rest = rest.trim_start_matches(['h', 'l', 'L']);
        let Some(kind) = rest.chars().next() else {
            return fail("incomplete format");
        };
        Ok((Self { key, spec, kind }, &rest[kind.len_utf8()..]))
    }

    fn write(mut self, heap: &Heap, value: &Value, out: &mut Sink<'_>) -> Outcome<()> {
        let spec = &mut self.spec;
        spec.align = spec.align.or(Some('>'));
        let text = match self.kind {
            's' => str_of(heap, value)?,
            'r' => repr(heap, value)?,
            'a' => written(&heap.budget, |out| ascii(&repr(heap, value)?, out))?,
            'c' => match (value, value.int()) {
                (Value::Str(text), _) if text.chars().count() == 1 => text.to_string(),
                (_, Some(code)) => match u32::try_from(code).ok().and_then(char::from_u32) {
                    Some(c) => c.to_string(),
                    None => return fail("%c requires a character"),
                },
                _ => return fail("%c requires a character"),
            },
            'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
                let number = match (value, self.kind) {
                    (Value::Float(number), 'd' | 'i' | 'u') => truncated(*number)?,
                    _ => match value.int() {
                        Some(number) => number,
                        None => {
                            let (kind, name) = (self.kind, value.type_name());
                            return fail(format_args!("%{kind} requires a number, got {name}"));
                        }
                    },
                };
                spec.digits = spec.precision.take().unwrap_or(0);
                spec.kind = Some(if matches!(self.kind, 'i' | 'u') {
                    'd'
                } else {
                    self.kind
                });
                return format_value(heap, &Value::Int(number), spec, out);
            }
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                let Some(number) = value.float() else {
                    let name = value.type_name();
                    return fail(format_args!("format requires a number, got {name}"));
                };
                spec.kind = Some(self.kind);
                return format_value(heap, &Value::Float(number), spec, out);
            }
            kind => return fail(format_args!("unsupported format character {kind:?}")),
        };
        // Strings are padded with spaces.
        (spec.fill, spec.sign) = (' ', '-');
        spec.align = spec
            .align
            .map(|align| if align == '=' { '>' } else { align });
        format_value(heap, &heap.text(&text)?, spec, out)
    }
}

/// Writes a text with escapes for all characters that are not ASCII.
fn ascii(text: &str, out: &mut Sink<'_>) -> Outcome<()> {
    for c in text.chars() {
        match u32::from(c) {
            ..0x80 => out.push_char(c)?,
            code @ ..=0xff => out.format(format_args!("\\x{code:02x}"))?,
            code @ ..=0xffff => out.format(format_args!("\\u{code:04x}"))?,
            code => out.format(format_args!("\\U{code:08x}"))?,
        }
    }
    Ok(())
}

/// Reads a number at the start of a text; `usize::MAX` for `*`.
fn number(text: &mut &str) -> Outcome<Option<usize>> {
    if let Some(rest) = text.strip_prefix('*') {
        *text = rest;
        return Ok(Some(usize::MAX));
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    match digits.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) if digits.is_empty() => Ok(None),
        Err(_) => too_large("format: a width or precision is too large"),
    }
}

/// `text.format(*positional, **keywords)`.
pub(super) fn str_format(heap: &Heap, text: &str, values: &CallArguments) -> Outcome<String> {
    let mut next = Some(0);
    written(&heap.budget, |out| {
        write_format(heap, text, values, &mut next, DEPTH_MAX, out)
    })
}

/// Writes a format string. The pair is the number of the next automatic field, `None` after a field
/// with a number, and the remaining depth.
fn write_format(
    heap: &Heap,
    text: &str,
    values: &CallArguments,
    next: &mut Option<usize>,
    depth: usize,
    out: &mut Sink<'_>,
) -> Outcome<()> {
    if depth == 0 {
        return fail("format: fields are nested too deeply");
    }
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out.push(&rest[..at])?;
        let (brace, tail) = (&rest[at..=at], &rest[at + 1..]);
        if tail.starts_with(brace) {
            out.push(brace)?;
            rest = &tail[1..];
            continue;
        }
        if brace == "}" {
            return fail("format: single '}' encountered in format string");
        }
        let end = field_end(tail)?;
        let field = &tail[..end];
        rest = &tail[end + 1..];
        let split = field_split(field);
        let (name, after) = field.split_at(split);
        let (conversion, spec) = match after.strip_prefix('!') {
            Some(after) => match after.split_once(':') {
                Some((conversion, spec)) => (conversion, spec),
                None => (after, ""),
            },
            None => ("", after.strip_prefix(':').unwrap_or("")),
        };
        let mut value = field_value(heap, name, values, next)?;
        value = match conversion {
            "" => value,
            "s" => heap.text(&str_of(heap, &value)?)?,
            "r" => heap.text(&repr(heap, &value)?)?,
            "a" => {
                let text = repr(heap, &value)?;
                heap.text(&written(&heap.budget, |out| ascii(&text, out))?)?
            }
            _ => return fail(format_args!("format: unknown conversion {conversion:.20}")),
        };
        let spec = match spec.contains(['{', '}']) {
            true => written(&heap.budget, |out| {
                write_format(heap, spec, values, next, depth - 1, out)
            })?,
            false => spec.to_string(),
        };
        format_value(heap, &value, &Spec::parse(&spec)?, out)?;
    }
    out.push(rest)
}

/// End of the field that begins `text`.
fn field_end(text: &str) -> Outcome<usize> {
    let (mut depth, mut bracket) = (1, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => bracket = true,
            b']' => bracket = false,
            b'{' if !bracket => depth += 1,
            b'}' if !bracket => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(at);
        }
    }
    fail("format: expected '}' before end of string")
}

/// Position of the conversion or format after the name of a field.
fn field_split(field: &str) -> usize {
    let mut bracket = false;
    for (at, byte) in field.bytes().enumerate() {
        match byte {
            b'[' => bracket = true,
            b']' => bracket = false,
            b'!' | b':' if !bracket => return at,
            _ => {}
        }
    }
    field.len()
}

/// The value of a field such as `0.name[key]`.
fn field_value(
    heap: &Heap,
    name: &str,
    values: &CallArguments,
    next: &mut Option<usize>,
) -> Outcome<Value> {
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut rest) = name.split_at(end);
    let value = match (first.parse::<usize>(), &next) {
        (Ok(index), None | Some(0)) => {
            *next = None;
            values.positional.get(index)
        }
        (Err(_), Some(index)) if name.is_empty() => {
            let value = values.positional.get(*index);
            *next = Some(index + 1);
            value
        }
        (Ok(_), _) | (Err(_), None) if first.is_empty() || next.is_some() => {
            return fail("format: automatic and manual field numbers are mixed");
        }
        _ => values.keyword(first),
    };
    let Some(mut value) = value.cloned() else {
        return fail(format_args!("format: no value for field {{{name:.40}}}"));
    };
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('[') {
            let Some((key, tail)) = tail.split_once(']') else {
                return fail("format: missing ']' in format string");
            };
            let key = match key.parse::<u32>() {
                Ok(index) => Value::Int(index.into()),
                Err(_) => heap.text(key)?,
            };
            (value, rest) = (item(heap, &value, &key)?, tail);
        } else {
            let tail = rest.strip_prefix('.').unwrap_or(rest);
            let end = tail.find(['.', '[']).unwrap_or(tail.len());
            heap.budget.charge(end)?;
            value = attribute(heap, &value, &tail[..end].into())?;
            rest = &tail[end..];
            if end == 0 {
                return fail("format: empty attribute in format string");
            }
        }
    }
    Ok(value)
}

/// `text.format_map(dict)`.
pub(super) fn format_map(heap: &Heap, text: &str, dict: &Value) -> Outcome<String> {
    let Value::Dict(dict) = dict else {
        return fail("format_map requires a dict");
    };
    let mut values = CallArguments::default();
    for (key, value) in dict.iter() {
        if let Value::Str(key) = key {
            heap.budget.charge(size_of::<Value>())?;
            values.keywords.push((key.clone(), value.clone()));
        }
    }
    str_format(heap, text, &values)
}
