//! JSON bodies of requests: parsed with errors that name the field.

use super::error::{ApiError, ApiResult};
use axum::body::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};
use std::fmt;
use tabla::utf8::without_bom;

/// Maximum length of a string in a message, in bytes. Longer strings may be text of a prompt, which the
/// log does not have.
const STRING_BYTES_MAX: usize = 20;

/// A JSON object, of which requests parse the fields that they have. Others take no memory.
#[derive(Clone, Debug)]
pub(crate) struct Json(Bytes);

impl Json {
    /// Checks the syntax of a body. A byte order mark is ignored.
    pub(crate) fn new(bytes: Bytes) -> ApiResult<Self> {
        let Ok(text) = str::from_utf8(&bytes) else {
            return Err(ApiError::invalid("the body is not valid UTF-8"));
        };
        let bytes = bytes.slice(text.len() - without_bom(text).len()..);
        serde_json::from_slice::<Discarded>(&bytes)
            .map_err(|cause| ApiError::invalid(format!("invalid JSON: {cause}")))?;
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(ApiError::invalid("the body must be a JSON object"));
        }
        Ok(Self(bytes))
    }

    /// Returns the text without a byte order mark.
    pub(crate) fn text(&self) -> &[u8] {
        &self.0
    }

    /// Returns the whole body, for an error.
    fn value(&self) -> Value {
        serde_json::from_slice(&self.0).unwrap_or_default()
    }
}

/// A value that is checked and takes no memory. serde's `IgnoredAny` checks neither escapes nor the range of numbers.
struct Discarded;

impl<'de> Deserialize<'de> for Discarded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Discarded {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while fields.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        Self::new(value.to_string().into()).expect("an object")
    }
}

/// Parses a group of fields of a request. Other fields are ignored.
pub(crate) fn fields<'v, T: Deserialize<'v>>(request: &'v Json) -> ApiResult<T> {
    let mut text = serde_json::Deserializer::from_slice(&request.0);
    serde_path_to_error::deserialize(&mut text).map_err(|error| {
        let path = error.path().clone();
        let cause = error.into_inner().to_string();
        // The path is the position.
        let cause = cause
            .rsplit_once(" at line ")
            .map_or(&*cause, |(cause, _)| cause);
        if let Some(name) = cause.strip_prefix("duplicate field `") {
            let name = name.trim_end_matches('`');
            return ApiError::field(name, "is given twice: send it once, under one name");
        }
        let message = match cause.rsplit_once("expected ") {
            Some((_, expected)) => {
                let value = excerpt(value_at(&request.value(), &path));
                format!("expected {}, got {value}", json_type(expected))
            }
            None => cause.to_string(),
        };
        ApiError::field(path.to_string(), message)
    })
}

/// Returns the name of a type in JSON for serde's name of a Rust type.
fn json_type(expected: &str) -> &str {
    match expected {
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        name if name.starts_with("struct ") => "an object",
        name => name,
    }
}

/// Returns the value at a path, or the last value on the way that exists.
fn value_at<'v>(request: &'v Value, path: &Path) -> &'v Value {
    path.iter().fold(request, |value, segment| {
        let inner = match segment {
            Segment::Seq { index } => value.get(*index),
            Segment::Map { key } => value.get(key),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        inner.unwrap_or(value)
    })
}

/// Returns a value for a message, without the content of lists, objects and long strings.
fn excerpt(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_string(),
        Value::Object(_) => "an object".to_string(),
        Value::String(text) if text.len() > STRING_BYTES_MAX => "a string".to_string(),
        value => value.to_string(),
    }
}
