//! Calls in Python syntax, as LFM2 writes them: `[name(key="value", other=[1, None])]`, with literals as
//! values of keyword arguments.

use super::bodies::{self, DEPTH_MAX, ParsedBody};
use super::lark::{self, Rules};
use super::parameters::{allows_any, arguments};
use super::parts::ToolCall;
use super::texts::allows;
use crate::grammar::schema::types::Types;
use serde_json::{Map, Number, Value as Json};
use tabla_core::error::Result as GrammarResult;

type Read<T> = Result<T, ParsedBody>;

/// A list of calls, or a single one. Models write a list of objects with names and arguments if the
/// system message requests it.
pub(super) fn calls(text: &str, tools: &[Json]) -> ParsedBody {
    let start = text.trim_start();
    let item = start.strip_prefix('[').unwrap_or(start);
    if item.trim_start().starts_with('{') {
        return bodies::list_or_named(text, tools);
    }
    let mut literals = Literals(text);
    match literals.calls() {
        Ok(calls) => ParsedBody::ToolCalls(calls, text.len() - literals.0.len()),
        Err(read) => read,
    }
}

/// Parser of calls and literals. JSON values are literals too.
struct Literals<'t>(&'t str);

impl<'t> Literals<'t> {
    fn calls(&mut self) -> Read<Vec<ToolCall>> {
        let mut calls = Vec::new();
        if !self.take('[') {
            return Ok(vec![self.call()?]);
        }
        self.items(']', |literals| {
            calls.push(literals.call()?);
            Ok(())
        })?;
        match calls.is_empty() {
            true => Err(ParsedBody::Invalid),
            false => Ok(calls),
        }
    }

    fn call(&mut self) -> Read<ToolCall> {
        let name = self.name('(')?;
        let mut arguments = Map::new();
        self.items(')', |literals| {
            let key = literals.name('=')?;
            arguments.insert(key.to_string(), literals.value(0)?);
            Ok(())
        })?;
        Ok(ToolCall {
            id: None,
            name: name.to_string(),
            arguments: Json::from(arguments).to_string(),
        })
    }

    /// Consumes a name and the character after it.
    fn name(&mut self, end: char) -> Read<&'t str> {
        let at = self.0.find(end);
        let name = self.0[..at.unwrap_or(self.0.len())].trim();
        let is_incomplete = name.is_empty() && at.is_none();
        if !is_incomplete && !is_name(name) {
            return Err(ParsedBody::Invalid);
        }
        let at = at.ok_or(ParsedBody::Incomplete)?;
        self.0 = &self.0[at + end.len_utf8()..];
        Ok(name)
    }

    /// Consumes items that commas separate, up to `end`.
    fn items(&mut self, end: char, mut item: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        while !self.take(end) {
            item(self)?;
            if !self.take(',') {
                return match self.take(end) {
                    true => Ok(()),
                    false => Err(self.unexpected()),
                };
            }
        }
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Read<Json> {
        if depth > DEPTH_MAX {
            return Err(ParsedBody::Invalid);
        }
        self.space();
        if self.take('[') {
            let mut items = Vec::new();
            self.items(']', |literals| {
                items.push(literals.value(depth + 1)?);
                Ok(())
            })?;
            return Ok(items.into());
        }
        if self.take('{') {
            let mut fields = Map::new();
            self.items('}', |literals| {
                let key = literals.string()?;
                if !literals.take(':') {
                    return Err(literals.unexpected());
                }
                fields.insert(key, literals.value(depth + 1)?);
                Ok(())
            })?;
            return Ok(fields.into());
        }
        if self.0.starts_with(['"', '\'']) {
            return Ok(self.string()?.into());
        }
        let is_word = |c: char| c.is_alphanumeric() || "+-._".contains(c);
        let end = self.0.find(|c| !is_word(c)).ok_or(ParsedBody::Incomplete)?;
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        constant(word).ok_or(ParsedBody::Invalid)
    }

    fn string(&mut self) -> Read<String> {
        let Some(quote) = self.0.chars().next().filter(|c| ['"', '\''].contains(c)) else {
            return Err(self.unexpected());
        };
        let triple = String::from(quote).repeat(3);
        let is_triple = self.0.starts_with(&triple);
        let delimiter = &self.0[..if is_triple { 3 } else { 1 }];
        self.0 = &self.0[delimiter.len()..];
        let mut text = String::new();
        loop {
            let character = self.0.chars().next().ok_or(ParsedBody::Incomplete)?;
            match self.0.strip_prefix(delimiter) {
                Some(rest) if is_triple || is_end(rest)? => {
                    self.0 = rest;
                    self.space();
                    return Ok(text);
                }
                _ => self.0 = &self.0[character.len_utf8()..],
            }
            match character {
                '\\' => self.escape(&mut text)?,
                other => text.push(other),
            }
        }
    }

    /// Appends the character of the escape sequence after a backslash.
    fn escape(&mut self, text: &mut String) -> Read<()> {
        let character = self.0.chars().next().ok_or(ParsedBody::Incomplete)?;
        self.0 = &self.0[character.len_utf8()..];
        let value = match character {
            'x' => self.digits(2)?,
            'u' => self.digits(4)?,
            'U' => self.digits(8)?,
            _ => None,
        };
        match (character, value) {
            // Of a pair of surrogates, as in JSON.
            (_, Some(high @ 0xd800..=0xdbff)) => text.push(self.surrogate(high)?),
            (_, Some(value)) => text.push(char::from_u32(value).unwrap_or('\u{fffd}')),
            ('\n', _) => {}
            ('n', _) => text.push('\n'),
            ('t', _) => text.push('\t'),
            ('r', _) => text.push('\r'),
            ('a', _) => text.push('\u{7}'),
            ('b', _) => text.push('\u{8}'),
            ('f', _) => text.push('\u{c}'),
            ('v', _) => text.push('\u{b}'),
            ('0', _) => text.push('\0'),
            ('\\' | '\'' | '"' | '/', _) => text.push(character),
            // Python keeps the backslash of an unknown sequence.
            _ => text.extend(['\\', character]),
        }
        Ok(())
    }

    /// Returns the character of a pair of surrogates, of which the second one comes next.
    fn surrogate(&mut self, high: u32) -> Read<char> {
        const NEXT: &str = "\\u";
        if NEXT.starts_with(self.0) {
            return Err(ParsedBody::Incomplete);
        }
        let mut second = Literals(self.0.strip_prefix(NEXT).unwrap_or_default());
        let low = match self.0.starts_with(NEXT) {
            true => second.digits(4)?,
            false => None,
        };
        let Some(low) = low.filter(|low| (0xdc00..=0xdfff).contains(low)) else {
            return Ok('\u{fffd}');
        };
        self.0 = second.0;
        let value = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        Ok(char::from_u32(value).unwrap_or('\u{fffd}'))
    }

    /// Consumes the number that `count` hexadecimal digits form. Consumes nothing if they are no digits.
    fn digits(&mut self, count: usize) -> Read<Option<u32>> {
        let digits = self.0.bytes().take(count);
        let length = digits.take_while(u8::is_ascii_hexdigit).count();
        if length < count {
            return match length == self.0.len() {
                true => Err(ParsedBody::Incomplete),
                false => Ok(None),
            };
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(u32::from_str_radix(digits, 16).ok())
    }

    /// Consumes a character, and white space around it.
    fn take(&mut self, character: char) -> bool {
        self.space();
        let rest = self.0.strip_prefix(character);
        self.0 = rest.unwrap_or(self.0);
        self.space();
        rest.is_some()
    }

    fn space(&mut self) {
        self.0 = self.0.trim_start();
    }

    /// Returns the result at a text that has not the expected character.
    fn unexpected(&self) -> ParsedBody {
        match self.0.is_empty() {
            true => ParsedBody::Incomplete,
            false => ParsedBody::Invalid,
        }
    }
}

/// Returns whether a name can be read back.
fn is_name(name: &str) -> bool {
    let is_delimiter = |c: char| c.is_whitespace() || "\"'()[]{}<>=,:".contains(c);
    !name.is_empty() && !name.contains(is_delimiter)
}

/// Returns whether a quote before `rest` ends a string. Models write quotes within strings without a
/// backslash now and then.
fn is_end(rest: &str) -> Read<bool> {
    let next = rest.trim_start().chars().next();
    let next = next.ok_or(ParsedBody::Incomplete)?;
    Ok(",)]}:".contains(next))
}

/// Returns the value of a constant or a number.
fn constant(word: &str) -> Option<Json> {
    Some(match word {
        "True" | "true" => true.into(),
        "False" | "false" => false.into(),
        "None" | "null" => Json::Null,
        _ => Json::Number(number(word)?),
    })
}

fn number(word: &str) -> Option<Number> {
    let digits = word.replace('_', "");
    if let Ok(value) = digits.parse::<i64>() {
        return Some(value.into());
    }
    if let Ok(value) = digits.parse::<u64>() {
        return Some(value.into());
    }
    let (sign, magnitude) = match digits.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, &*digits),
    };
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        let value = magnitude.strip_prefix(prefix);
        if let Some(value) = value.and_then(|text| i64::from_str_radix(text, radix).ok()) {
            return Some((sign * value).into());
        }
    }
    // Not `inf` and `nan`.
    let is_decimal = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    let value = digits
        .parse()
        .ok()
        .filter(|_| digits.chars().all(is_decimal));
    value.and_then(Number::from_f64)
}

/// Returns the Lark expression of a call. Values are JSON, with the constants of Python at the top.
///
/// # Errors
/// `Argument` for a required property whose name the notation cannot express.
pub(super) fn body(name: &str, schema: &Json, rules: &mut Rules<'_>) -> GrammarResult<String> {
    let mut pairs = Vec::new();
    for argument in arguments(schema, is_name, rules)? {
        let key = lark::string(&format!("{}=", argument.key));
        let value = value(&argument.schema, schema);
        pairs.push((rules.add(&format!("{key} {value}")), argument.is_required));
    }
    let arguments = match allows_any(schema) {
        true => {
            let value = lark::json(&Json::Bool(true), schema);
            let any = format!("/[A-Za-z_][A-Za-z0-9_]*/ \"=\" {value}");
            let any = rules.once("any_argument", &any);
            format!("({any} (\", \" {any})*)?")
        }
        false => rules.sequence(&pairs, ", "),
    };
    let open = lark::string(&format!("{name}("));
    Ok(format!("{open} {arguments} \")\""))
}

/// Returns the expression of a value.
fn value(schema: &Json, root: &Json) -> String {
    let types = Types::of(schema, root);
    let json = lark::json(schema, root);
    if types == Types::BOOLEAN
        && allows(schema, root, &Json::Bool(true))
        && allows(schema, root, &Json::Bool(false))
    {
        return "(\"True\" | \"False\")".to_string();
    }
    match allows(schema, root, &Json::Null) {
        true => format!("({json} | \"None\")"),
        false => json,
    }
}
