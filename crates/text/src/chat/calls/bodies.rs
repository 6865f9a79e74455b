//! The readers of what stands between the markers of a call.

use super::parts::Call;
use serde_json::{Deserializer, Map, Value as Json};

/// What became of a text that begins with a body.
#[derive(Debug, PartialEq)]
pub(super) enum Read {
    /// It may still become one.
    More,
    /// These calls, in so many bytes.
    Calls(Vec<Call>, usize),
    /// It is something else.
    Other,
}

/// Reads the calls at the start of a text; the tools say which types their parameters have.
pub(super) type Body = fn(&str, &[Json]) -> Read;

/// The JSON value at the start of a text, and where it ends.
fn value(text: &str) -> Result<(Json, usize), Read> {
    let mut values = Deserializer::from_str(text).into_iter();
    match values.next() {
        Some(Ok(value)) => Ok((value, values.byte_offset())),
        Some(Err(error)) if !error.is_eof() => Err(Read::Other),
        _ => Err(Read::More),
    }
}

/// A call as an object, in each of the spellings that models were trained on.
fn call(value: &Json) -> Option<Call> {
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
    Some(Call {
        id: value.get("id").and_then(Json::as_str).map(str::to_string),
        name: inner.get("name")?.as_str()?.to_string(),
        arguments,
    })
}

/// `{"name": ..., "arguments": {...}}`
pub(super) fn object(text: &str, _: &[Json]) -> Read {
    match value(text) {
        Ok((value, end)) => match call(&value) {
            Some(call) => Read::Calls(vec![call], end),
            None => Read::Other,
        },
        Err(read) => read,
    }
}

/// A list of such objects, one of them, or `name[CALL_ID]id[ARGS]{...}`.
pub(super) fn list_or_named(text: &str, tools: &[Json]) -> Read {
    let start = text.trim_start();
    if start.starts_with('{') {
        return object(text, tools);
    }
    if !start.starts_with('[') {
        return named(text);
    }
    match value(text) {
        Ok((Json::Array(items), end)) => match items.iter().map(call).collect() {
            Some(calls) => Read::Calls(calls, end),
            None => Read::Other,
        },
        Ok(_) => Read::Other,
        Err(read) => read,
    }
}

fn named(text: &str) -> Read {
    let Some((head, arguments)) = text.split_once("[ARGS]") else {
        let has_ended = text.trim().contains(char::is_whitespace);
        return if has_ended { Read::Other } else { Read::More };
    };
    let (name, id) = match head.split_once("[CALL_ID]") {
        Some((name, id)) => (name, Some(id.trim().to_string())),
        None => (head, None),
    };
    with_arguments(name.trim(), id, (text, arguments))
}

/// The call of a tool by its name, whose arguments are an object at the start of the second text,
/// the end of the first.
fn with_arguments(name: &str, id: Option<String>, (text, arguments): (&str, &str)) -> Read {
    match value(arguments) {
        Ok((object @ Json::Object(_), end)) if !name.is_empty() => {
            let call = Call {
                id,
                name: name.to_string(),
                arguments: object.to_string(),
            };
            Read::Calls(vec![call], text.len() - arguments.len() + end)
        }
        Ok(_) => Read::Other,
        Err(read) => read,
    }
}

/// `name>{...}`
pub(super) fn tagged(text: &str, _: &[Json]) -> Read {
    match text.split_once('>') {
        None => Read::More,
        Some((name, arguments)) => with_arguments(name.trim(), None, (text, arguments)),
    }
}

/// `<function=name>`, a `<parameter=key>` for each argument with its text in lines of its own, and
/// `</function>`.
pub(super) fn parameters(text: &str, tools: &[Json]) -> Read {
    const OPEN: &str = "<function=";
    const KEY: &str = "<parameter=";
    const END_OF_VALUE: &str = "</parameter>";
    const END: &str = "</function>";
    let start = text.trim_start();
    let Some(rest) = start.strip_prefix(OPEN) else {
        return if OPEN.starts_with(start) {
            Read::More
        } else {
            Read::Other
        };
    };
    let Some((name, mut rest)) = rest.split_once('>') else {
        return Read::More;
    };
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix(END) {
            let call = Call {
                id: None,
                name: name.trim().to_string(),
                arguments: Json::from(arguments).to_string(),
            };
            return Read::Calls(vec![call], text.len() - behind.len());
        }
        let Some(parameter) = rest.strip_prefix(KEY) else {
            let may_be = END.starts_with(rest) || KEY.starts_with(rest);
            return if may_be { Read::More } else { Read::Other };
        };
        let Some((key, behind)) = parameter.split_once('>') else {
            return Read::More;
        };
        let Some((value, behind)) = behind.split_once(END_OF_VALUE) else {
            return Read::More;
        };
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.to_string(), typed(value, schema(tools, name, key)));
        rest = behind;
    }
}

/// The schema of a tool's parameter.
fn schema<'t>(tools: &'t [Json], name: &str, key: &str) -> Option<&'t Json> {
    let function = |tool: &'t Json| tool.get("function").unwrap_or(tool);
    let is_named = |tool: &&Json| tool.get("name").and_then(Json::as_str) == Some(name);
    let tool = tools.iter().map(function).find(is_named)?;
    tool.get("parameters")?.get("properties")?.get(key)
}

/// What a text is as an argument: a text where the schema wants one, else what it says.
fn typed(text: &str, schema: Option<&Json>) -> Json {
    let kind = schema.and_then(|schema| schema.get("type"));
    let is_text = kind.and_then(Json::as_str) == Some("string");
    let value = match text {
        "True" => Some(Json::Bool(true)),
        "False" => Some(Json::Bool(false)),
        "None" => Some(Json::Null),
        _ => serde_json::from_str(text).ok(),
    };
    value.filter(|_| !is_text).unwrap_or_else(|| text.into())
}

/// `call:name{key:value,...}`, in which texts stand between tokens that quote.
pub(super) fn quoted_by_tokens(text: &str, _: &[Json]) -> Read {
    const OPEN: &str = "call:";
    let Some(rest) = text.strip_prefix(OPEN) else {
        return if OPEN.starts_with(text) {
            Read::More
        } else {
            Read::Other
        };
    };
    let Some(at) = rest.find('{') else {
        return Read::More;
    };
    let mut values = Values(&rest[at..]);
    match values.value(0) {
        Ok(arguments) => {
            let call = Call {
                id: None,
                name: rest[..at].trim().to_string(),
                arguments: arguments.to_string(),
            };
            Read::Calls(vec![call], text.len() - values.0.len())
        }
        Err(read) => read,
    }
}

/// A reader of values whose keys are bare, and whose texts have a mark on both sides.
struct Values<'t>(&'t str);

const QUOTE: &str = "<|\"|>";
/// Levels of values within values at most.
const DEPTH_MAX: usize = 64;

impl<'t> Values<'t> {
    fn take(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// The text in front of a mark, which goes too.
    fn until(&mut self, mark: &str) -> Result<&'t str, Read> {
        let (text, rest) = self.0.split_once(mark).ok_or(Read::More)?;
        self.0 = rest;
        Ok(text)
    }

    fn value(&mut self, depth: usize) -> Result<Json, Read> {
        if depth > DEPTH_MAX {
            return Err(Read::Other);
        }
        if self.take(QUOTE) {
            return Ok(self.until(QUOTE)?.into());
        }
        if QUOTE.starts_with(self.0) {
            return Err(Read::More);
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
        let end = self.0.find([',', '}', ']']).ok_or(Read::More)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = rest;
        Ok(typed(text.trim(), None))
    }

    fn comma(&mut self, end: &str) -> Result<(), Read> {
        match self.0.chars().next() {
            None => Err(Read::More),
            Some(_) if self.take(",") || self.0.starts_with(end) => Ok(()),
            Some(_) => Err(Read::Other),
        }
    }
}
