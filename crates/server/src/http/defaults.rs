//! Fields that the server adds to requests without them.

use crate::engine::parameters::check_sampling;
use crate::http::body::Json;
use axum::body::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

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

    /// Adds the fields that a body lacks. Other than JSON objects are returned unchanged.
    pub(crate) fn apply(&self, body: Bytes) -> Bytes {
        if self.0.is_empty() {
            return body;
        }
        let Ok(Keys(keys)) = serde_json::from_slice(&body) else {
            return body;
        };
        let Some(open) = body.iter().position(|byte| *byte == b'{') else {
            return body;
        };
        let lacks = |(name, _): &(&String, &Value)| {
            let mut synonyms = SYNONYMS
                .iter()
                .filter(|names| names.contains(&name.as_str()));
            let has_synonym = synonyms.any(|names| names.iter().any(|name| keys.contains(*name)));
            !has_synonym && !keys.contains(name.as_str())
        };
        let added = self.0.iter().filter(lacks);
        let mut added: Vec<String> = added
            .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
            .collect();
        if added.is_empty() {
            return body;
        }
        if !keys.is_empty() {
            added.push(String::new());
        }
        let (before, after) = body.split_at(open + 1);
        [before, added.join(",").as_bytes(), after].concat().into()
    }
}

/// Names of the fields of an object.
struct Keys(BTreeSet<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = std::collections::BTreeMap::<String, IgnoredAny>::deserialize(deserializer)?;
        Ok(Self(fields.into_keys().collect()))
    }
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
            r#"{"n_predict": null}"#,
            json!({ "n_predict": null, "repetition_penalty": 1.5, "temperature": 0 }),
        );
    }

    #[test]
    fn other_bodies_are_unchanged() {
        for body in ["", "[1]", "{\"a\": ", "null"] {
            assert_eq!(applied(json!({ "top_k": 1 }), body), body);
        }
        assert_eq!(applied(json!({}), "{}"), "{}");
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let fields = json!({ "temperature": 3 });
        let error = RequestDefaults::new(fields.as_object().expect("an object"));
        let error = error.err().expect("temperature 3 is out of range");
        assert!(error.contains("temperature"), "{error}");
    }
}
