//! Parsers of the tool-call body between the markers.

use super::harmony;
use super::parts::ToolCall;
use crate::grammar::schema::types::{Types, target};
use serde_json::{Deserializer, Map, Value as Json};

/// Result of parsing a tool-call body at the start of a text.
#[derive(Debug, PartialEq)]
pub(super) enum ParsedBody {
    /// The text is a valid prefix; more is needed.
    Incomplete,
    /// Tool calls, and the length of the body in bytes.
    ToolCalls(Vec<ToolCall>, usize),
    /// The text is not a tool call.
    Invalid,
}

/// Parses the tool calls at the start of a text. The tool definitions give the parameter types.
pub(super) type BodyParser = fn(&str, &[Json]) -> ParsedBody;

/// Parses the JSON value at the start of a text. Returns it and its end.
fn value(text: &str) -> Result<(Json, usize), ParsedBody> {
    let mut values = Deserializer::from_str(text).into_iter();
    match values.next() {
        Some(Ok(value)) => Ok((value, values.byte_offset())),
        Some(Err(error)) if !error.is_eof() => Err(ParsedBody::Invalid),
        _ => Err(ParsedBody::Incomplete),
    }
}

/// Converts a JSON object to a tool call. Accepts the key names of all known models.
fn tool_call(value: &Json) -> Option<ToolCall> {
    let function = value.get("function").filter(|f| f.is_object());
    let inner = function.unwrap_or(value);
    let arguments = ["arguments", "parameters"]
        .iter()
        .find_map(|key| inner.get(*key));
    let arguments = match arguments {
        None => "{}".to_string(),
        Some(object @ Json::Object(_)) => object.to_string(),
        Some(Json::String(text)) => {
            let object: Map<String, Json> = serde_json::from_str(text).ok()?;
            Json::from(object).to_string()
        }
        Some(_) => return None,
    };
    Some(ToolCall {
        id: value.get("id").and_then(Json::as_str).map(str::to_string),
        name: inner.get("name")?.as_str()?.to_string(),
        arguments,
    })
}

/// `{"name": ..., "arguments": {...}}`
pub(super) fn object(text: &str, _: &[Json]) -> ParsedBody {
    match value(text) {
        Ok((value, end)) => match tool_call(&value) {
            Some(call) => ParsedBody::ToolCalls(vec![call], end),
            None => ParsedBody::Invalid,
        },
        Err(read) => read,
    }
}

/// A list of such objects, a single one, or `name[CALL_ID]id[ARGS]{...}`.
pub(super) fn list_or_named(text: &str, tools: &[Json]) -> ParsedBody {
    let start = text.trim_start();
    if start.starts_with('{') {
        return object(text, tools);
    }
    if !start.starts_with('[') {
        return named(text);
    }
    match value(text) {
        Ok((Json::Array(items), end)) => match items.iter().map(tool_call).collect() {
            Some(calls) => ParsedBody::ToolCalls(calls, end),
            None => ParsedBody::Invalid,
        },
        Ok(_) => ParsedBody::Invalid,
        Err(read) => read,
    }
}

fn named(text: &str) -> ParsedBody {
    let Some((head, arguments)) = text.split_once("[ARGS]") else {
        let has_ended = text.trim().contains(char::is_whitespace);
        return if has_ended {
            ParsedBody::Invalid
        } else {
            ParsedBody::Incomplete
        };
    };
    let (name, id) = match head.split_once("[CALL_ID]") {
        Some((name, id)) => (name, Some(id.trim().to_string())),
        None => (head, None),
    };
    with_arguments(name.trim(), id, text, arguments)
}

/// Returns the call of tool `name` with the object at the start of `arguments`, which is a suffix
/// of `text`.
fn with_arguments(name: &str, id: Option<String>, text: &str, arguments: &str) -> ParsedBody {
    match value(arguments) {
        Ok((object @ Json::Object(_), end)) if !name.is_empty() => {
            let call = ToolCall {
                id,
                name: name.to_string(),
                arguments: object.to_string(),
            };
            ParsedBody::ToolCalls(vec![call], text.len() - arguments.len() + end)
        }
        Ok(_) => ParsedBody::Invalid,
        Err(read) => read,
    }
}

/// `name>{...}`
pub(super) fn tagged(text: &str, _: &[Json]) -> ParsedBody {
    match text.split_once('>') {
        None => ParsedBody::Incomplete,
        Some((name, arguments)) => with_arguments(name.trim(), None, text, arguments),
    }
}

/// Returns whether a text can be the name of a tool: it has no white space and no marker.
pub(super) fn is_name(text: &str) -> bool {
    !text.contains(|c: char| c.is_whitespace() || c == '<')
}

/// Marker between the parts of a call of DeepSeek.
pub(super) const SEPARATOR: &str = "<｜tool▁sep｜>";

/// `name<｜tool▁sep｜>{...}`, and the older ``function<｜tool▁sep｜>name\n```json\n{...}\n``` ``.
pub(super) fn separated(text: &str, _: &[Json]) -> ParsedBody {
    const FENCE: &str = "```";
    const LANGUAGE: &str = "json";
    let Some((name, rest)) = text.split_once(SEPARATOR) else {
        return match text.trim().contains(char::is_whitespace) {
            true => ParsedBody::Invalid,
            false => ParsedBody::Incomplete,
        };
    };
    let (name, rest) = (name.trim(), rest.trim_start());
    if !is_name(name) {
        return ParsedBody::Invalid;
    }
    if name != "function" || rest.starts_with('{') {
        return with_arguments(name, None, text, rest);
    }
    let Some((name, rest)) = rest.split_once('\n') else {
        return ParsedBody::Incomplete;
    };
    let Some(rest) = rest.trim_start().strip_prefix(FENCE) else {
        return match FENCE.starts_with(rest.trim_start()) {
            true => ParsedBody::Incomplete,
            false => ParsedBody::Invalid,
        };
    };
    if LANGUAGE.starts_with(rest) {
        return ParsedBody::Incomplete;
    }
    let arguments = rest.strip_prefix(LANGUAGE).unwrap_or(rest);
    let read = with_arguments(name.trim(), None, text, arguments);
    let ParsedBody::ToolCalls(calls, end) = read else {
        return read;
    };
    let rest = text[end..].trim_start();
    match rest.strip_prefix(FENCE) {
        Some(rest) => ParsedBody::ToolCalls(calls, text.len() - rest.len()),
        None if FENCE.starts_with(rest) => ParsedBody::Incomplete,
        None => ParsedBody::ToolCalls(calls, end),
    }
}

/// `functions.name <|constrain|>json<|message|>{...}`
pub(super) fn recipient(text: &str, _: &[Json]) -> ParsedBody {
    match harmony::call(text) {
        None => ParsedBody::Incomplete,
        Some((name, arguments)) => with_arguments(name, None, text, arguments),
    }
}

/// `<function=name>`, then `<parameter=key>`, the value on separate lines and `</parameter>` for
/// each argument, then `</function>`.
pub(super) fn parameters(text: &str, tools: &[Json]) -> ParsedBody {
    const OPEN: &str = "<function=";
    const KEY: &str = "<parameter=";
    const END_OF_VALUE: &str = "</parameter>";
    const END: &str = "</function>";
    let start = text.trim_start();
    let Some(rest) = start.strip_prefix(OPEN) else {
        return if OPEN.starts_with(start) {
            ParsedBody::Incomplete
        } else {
            ParsedBody::Invalid
        };
    };
    let Some((name, mut rest)) = rest.split_once('>') else {
        return ParsedBody::Incomplete;
    };
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix(END) {
            let call = ToolCall {
                id: None,
                name: name.trim().to_string(),
                arguments: Json::from(arguments).to_string(),
            };
            return ParsedBody::ToolCalls(vec![call], text.len() - after.len());
        }
        let Some(parameter) = rest.strip_prefix(KEY) else {
            let is_prefix = END.starts_with(rest) || KEY.starts_with(rest);
            return if is_prefix {
                ParsedBody::Incomplete
            } else {
                ParsedBody::Invalid
            };
        };
        let Some((key, after)) = parameter.split_once('>') else {
            return ParsedBody::Incomplete;
        };
        let Some((value, after)) = after.split_once(END_OF_VALUE) else {
            return ParsedBody::Incomplete;
        };
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.to_string(), typed(value, types(tools, name, key)));
        rest = after;
    }
}

/// A name, then `<arg_key>key</arg_key><arg_value>value</arg_value>` for each argument, up to
/// `</tool_call>`.
pub(super) fn key_values(text: &str, tools: &[Json]) -> ParsedBody {
    match text.trim_start().starts_with('{') {
        true => object(text, tools),
        false => read_key_values(text, tools).unwrap_or_else(|read| read),
    }
}

fn read_key_values(text: &str, tools: &[Json]) -> Result<ParsedBody, ParsedBody> {
    const END: &str = "</tool_call>";
    let name = text.split('<').next().unwrap_or_default();
    let mut rest = &text[name.len()..];
    let name = name.trim();
    if !is_name(name) || name.is_empty() && !rest.is_empty() {
        return Err(ParsedBody::Invalid);
    }
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start();
        if rest.starts_with(END) {
            let call = ToolCall {
                id: None,
                name: name.to_string(),
                arguments: Json::from(arguments).to_string(),
            };
            return Ok(ParsedBody::ToolCalls(vec![call], text.len() - rest.len()));
        }
        if END.starts_with(rest) {
            return Err(ParsedBody::Incomplete);
        }
        let (key, after) = element(rest, "<arg_key>", "</arg_key>")?;
        let (value, after) = element(after, "<arg_value>", "</arg_value>")?;
        let key = key.trim();
        arguments.insert(key.to_string(), typed(value, types(tools, name, key)));
        rest = after;
    }
}

/// Returns the text between two tags at the start of a text, and the text after them.
fn element<'t>(text: &'t str, open: &str, close: &str) -> Result<(&'t str, &'t str), ParsedBody> {
    let text = text.trim_start();
    let Some(rest) = text.strip_prefix(open) else {
        return Err(match open.starts_with(text) {
            true => ParsedBody::Incomplete,
            false => ParsedBody::Invalid,
        });
    };
    rest.split_once(close).ok_or(ParsedBody::Incomplete)
}

/// Returns the types that the schema of a tool's parameter allows.
fn types(tools: &[Json], name: &str, key: &str) -> Types {
    let is_named = |tool: &&Json| tool.get("name").and_then(Json::as_str) == Some(name);
    let mut functions = tools
        .iter()
        .map(|tool| tool.get("function").unwrap_or(tool));
    let types = functions.find(is_named).and_then(|function| {
        let root = function.get("parameters")?;
        let object = root.get("$ref").and_then(|to| target(to, root));
        let properties = object.unwrap_or(root).get("properties")?;
        Some(Types::of(properties.get(key)?, root))
    });
    types.unwrap_or(Types::ALL)
}

/// Converts the text of an argument to the JSON or Python literal that it spells, or to a string if
/// it spells none or only strings are allowed.
fn typed(text: &str, types: Types) -> Json {
    let value = match text {
        "True" => Some(Json::Bool(true)),
        "False" => Some(Json::Bool(false)),
        "None" => Some(Json::Null),
        _ => serde_json::from_str(text).ok(),
    };
    let is_text = |value: &Json| {
        types.contains(Types::STRING) && !types.contains(Types::of_value(value))
            || types == Types::STRING
    };
    value
        .filter(|value| !is_text(value))
        .unwrap_or_else(|| text.into())
}

/// `call:name{key:value,...}`, in which strings are enclosed in quote tokens.
pub(super) fn quoted_by_tokens(text: &str, _: &[Json]) -> ParsedBody {
    const OPEN: &str = "call:";
    let Some(rest) = text.strip_prefix(OPEN) else {
        return if OPEN.starts_with(text) {
            ParsedBody::Incomplete
        } else {
            ParsedBody::Invalid
        };
    };
    let Some(at) = rest.find('{') else {
        return ParsedBody::Incomplete;
    };
    let mut values = Values(&rest[at..]);
    match values.value(0) {
        Ok(arguments) => {
            let call = ToolCall {
                id: None,
                name: rest[..at].trim().to_string(),
                arguments: arguments.to_string(),
            };
            ParsedBody::ToolCalls(vec![call], text.len() - values.0.len())
        }
        Err(read) => read,
    }
}

/// Parser of values with unquoted keys and strings enclosed in [`QUOTE`].
struct Values<'t>(&'t str);

pub(super) const QUOTE: &str = "<|\"|>";
/// Maximum nesting depth of values.
pub(super) const DEPTH_MAX: usize = 64;

impl<'t> Values<'t> {
    fn take(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Consumes the text up to a delimiter and the delimiter. Returns the text.
    fn until(&mut self, delimiter: &str) -> Result<&'t str, ParsedBody> {
        let (text, rest) = self.0.split_once(delimiter).ok_or(ParsedBody::Incomplete)?;
        self.0 = rest;
        Ok(text)
    }

    fn value(&mut self, depth: usize) -> Result<Json, ParsedBody> {
        if depth > DEPTH_MAX {
            return Err(ParsedBody::Invalid);
        }
        if self.take(QUOTE) {
            return Ok(self.until(QUOTE)?.into());
        }
        if QUOTE.starts_with(self.0) {
            return Err(ParsedBody::Incomplete);
        }
        if self.take("{") {
            let mut fields = Map::new();
            while !self.take("}") {
                let key = if self.take(QUOTE) {
                    let key = self.until(QUOTE)?;
                    self.until(":")?;
                    key
                } else {
                    self.until(":")?
                };
                fields.insert(key.trim().to_string(), self.value(depth + 1)?);
                self.comma("}")?;
            }
            return Ok(fields.into());
        }
        if self.take("[") {
            let mut items = Vec::new();
            while !self.take("]") {
                items.push(self.value(depth + 1)?);
                self.comma("]")?;
            }
            return Ok(items.into());
        }
        let end = self.0.find([',', '}', ']']).ok_or(ParsedBody::Incomplete)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = rest;
        Ok(typed(text.trim(), Types::ALL))
    }

    fn comma(&mut self, end: &str) -> Result<(), ParsedBody> {
        match self.0.chars().next() {
            None => Err(ParsedBody::Incomplete),
            Some(_) if self.take(",") || self.0.starts_with(end) => Ok(()),
            Some(_) => Err(ParsedBody::Invalid),
        }
    }
}
