//! Fields that the server adds to requests without them.

use crate::engine::parameters::{check_sampling, generate_options};
use crate::http::body::Json;
use crate::models::{Kind, Loaded};
use axum::body::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// Fields with one meaning. A request with one of them gets no default of another.
const SYNONYMS: [&[&str]; 3] = [
    &[
        "max_completion_tokens",
        "max_tokens",
        "max_output_tokens",
        "n_predict",
    ],
    &["repeat_penalty", "repetition_penalty"],
    &["stop", "stop_sequences"],
];

/// Default values of fields of requests.
pub(crate) struct RequestDefaults(Map<String, Value>);

impl RequestDefaults {
    /// Checks the values.
    ///
    /// # Errors
    ///
    /// If a value is not one that a request may have.
    pub(crate) fn new(fields: &Map<String, Value>) -> Result<Self, String> {
        let text = Value::Object(fields.clone()).to_string();
        Json::new(text.into())
            .and_then(|request| check_sampling(&request))
            .map_err(|error| format!("default of requests: {}", error.message))?;
        Ok(Self(fields.clone()))
    }

    /// Checks the values for a model.
    ///
    /// # Errors
    ///
    /// If the model generates text, and a value is not one that its requests may have.
    pub(crate) fn check(&self, model: &Loaded) -> Result<(), String> {
        if self.0.is_empty() || model.kind != Kind::Text {
            return Ok(());
        }
        let text = Value::Object(self.0.clone()).to_string();
        let options = Json::new(text.into()).and_then(|request| generate_options(&request, model));
        options.map(drop).map_err(|error| {
            let option = error.param.unwrap_or_default().replace('_', "-");
            format!(
                "default of requests of the model {} (option --{option}): {}",
                model.name, error.message
            )
        })
    }

    /// Replaces the values of parameters that have a default here, under any of their names.
    pub(crate) fn replace_in(&self, params: &mut Value) {
        for (name, value) in &self.0 {
            let mut groups = SYNONYMS
                .iter()
                .filter(|names| names.contains(&name.as_str()));
            let names = groups.next().copied().unwrap_or_default();
            for name in names.iter().copied().chain([name.as_str()]) {
                if let Some(param) = params.get_mut(name) {
                    param.clone_from(value);
                }
            }
        }
    }

    /// Adds the fields that a body lacks or has as null. Invalid bodies are returned unchanged, so that errors have
    /// the positions of the client.
    pub(crate) fn apply(&self, body: Bytes) -> Bytes {
        if self.0.is_empty() {
            return body;
        }
        let Ok(request) = Json::new(body.clone()) else {
            return body;
        };
        let Some(mut fields) = members(request.text()) else {
            return body;
        };
        let lacks = |(name, _): &(&String, &Value)| {
            let has = |field: &Member<'_>| !field.is_null() && have_one_meaning(name, &field.name);
            !fields.iter().any(has)
        };
        let added: Vec<(&String, &Value)> = self.0.iter().filter(lacks).collect();
        if added.is_empty() {
            return body;
        }
        let is_replaced = |field: &Member<'_>| {
            let mut added = added.iter();
            field.is_null() && added.any(|(name, _)| have_one_meaning(name, &field.name))
        };
        fields.retain(|field| !is_replaced(field));
        let fields = fields.into_iter().map(|field| field.text.to_vec());
        let added = added
            .iter()
            .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())).into_bytes());
        let fields: Vec<Vec<u8>> = fields.chain(added).collect();
        [b"{", fields.join(&b","[..]).as_slice(), b"}"]
            .concat()
            .into()
    }
}

/// Whether two fields are one, or synonyms.
fn have_one_meaning(name: &str, other: &str) -> bool {
    let are_synonyms = |names: &&[&str]| names.contains(&name) && names.contains(&other);
    name == other || SYNONYMS.iter().any(are_synonyms)
}

/// A field of an object.
struct Member<'a> {
    name: String,
    /// Name and value.
    text: &'a [u8],
    value: &'a [u8],
}

impl Member<'_> {
    fn is_null(&self) -> bool {
        self.value == b"null"
    }
}

/// Returns the fields of a valid object, without copies of their values; `None` for other text.
fn members(object: &[u8]) -> Option<Vec<Member<'_>>> {
    let mut rest = object.trim_ascii().strip_prefix(b"{")?.trim_ascii_start();
    let mut members = Vec::new();
    while rest != b"}" {
        let begin = rest;
        let (name, after) = first::<String>(rest)?;
        let text = after.trim_ascii_start().strip_prefix(b":")?;
        let text = text.trim_ascii_start();
        let (_, after) = first::<IgnoredAny>(text)?;
        members.push(Member {
            name,
            text: &begin[..begin.len() - after.len()],
            value: &text[..text.len() - after.len()],
        });
        let after = after.trim_ascii_start();
        rest = after.strip_prefix(b",").unwrap_or(after);
        rest = rest.trim_ascii_start();
    }
    Some(members)
}

/// Parses the first value. Returns it and the text after it.
fn first<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Option<(T, &'a [u8])> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter();
    let value = values.next()?.ok()?;
    Some((value, &text[values.byte_offset()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn applied(defaults: Value, body: &str) -> String {
        let Value::Object(fields) = defaults else {
            panic!("{defaults} is no object");
        };
        let defaults = RequestDefaults::new(&fields).expect("valid defaults");
        let body = defaults.apply(Bytes::copy_from_slice(body.as_bytes()));
        String::from_utf8(body.to_vec()).expect("UTF-8")
    }

    #[test]
    fn requests_get_the_fields_that_they_lack() {
        let check = |body: &str, expected: Value| {
            let defaults = json!({ "n_predict": 5, "repetition_penalty": 1.5, "temperature": 0 });
            let text = applied(defaults, body);
            let value: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(value, expected, "{body}");
        };
        let all = json!({ "n_predict": 5, "repetition_penalty": 1.5, "temperature": 0 });
        check("{}", all.clone());
        check(" { } ", all);
        check(
            r#"{"prompt": "{", "temperature": 1, "max_tokens": 2, "repeat_penalty": 1}"#,
            json!({ "prompt": "{", "temperature": 1, "max_tokens": 2, "repeat_penalty": 1 }),
        );
        check(
            r#"{"repeat_penalty": 2, "repetition_penalty": null, "n_predict": 1, "temperature": 1.0}"#,
            json!({ "repeat_penalty": 2, "repetition_penalty": null, "n_predict": 1, "temperature": 1.0 }),
        );
    }

    #[test]
    fn null_is_a_field_that_is_missing() {
        let defaults = || json!({ "n_predict": 5, "temperature": 0 });
        for (body, expected) in [
            (
                r#"{"max_tokens" : null , "a":[null, 1.50,{"b":"}"}], "temperature":null}"#,
                r#"{"a":[null, 1.50,{"b":"}"}],"n_predict":5,"temperature":0}"#,
            ),
            (
                r#"{"max_tokens": null, "n_predict": 2, "seed": null}"#,
                r#"{"max_tokens": null,"n_predict": 2,"seed": null,"temperature":0}"#,
            ),
            // Fields that are given twice remain errors.
            (
                r#"{"n": 1, "\u006e": 12345678901234567890123, "top_k": -0.0}"#,
                r#"{"n": 1,"\u006e": 12345678901234567890123,"top_k": -0.0,"n_predict":5,"temperature":0}"#,
            ),
            ("\u{feff}{}", r#"{"n_predict":5,"temperature":0}"#),
        ] {
            assert_eq!(applied(defaults(), body), expected);
        }
    }

    #[test]
    fn other_bodies_are_unchanged() {
        for body in ["", "[1]", "{\"a\": ", "null", r#"{"a": "\ud800"}"#] {
            assert_eq!(applied(json!({ "top_k": 1 }), body), body);
        }
        assert_eq!(applied(json!({}), "{}"), "{}");
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let fields = json!({ "temperature": 101 });
        let error = RequestDefaults::new(fields.as_object().expect("an object"));
        let error = error.err().expect("temperature 101 is out of range");
        assert!(error.contains("temperature"), "{error}");
    }
}
