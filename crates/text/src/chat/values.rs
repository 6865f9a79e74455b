//! Conversion of JSON values to template values, with a function applied to each string.

use super::budget::ConversationSize;
use minijinja::Value;
use serde_json::Value as Json;
use tabla_core::error::{Result, bail};

/// Maximum nesting depth of a conversation, as in `serde_json`.
const DEPTH_MAX: usize = 128;

/// Converts values and sums up their size.
pub(super) struct ValueConverter<'a> {
    /// Applied to each string, including object keys.
    text: &'a dyn Fn(&str) -> String,
    size: ConversationSize,
}

impl<'a> ValueConverter<'a> {
    pub(super) fn new(text: &'a dyn Fn(&str) -> String) -> Self {
        Self {
            text,
            size: ConversationSize::default(),
        }
    }

    /// Total size of the converted values.
    pub(super) fn size(&self) -> ConversationSize {
        self.size
    }

    /// Converts a value.
    ///
    /// # Errors
    /// `TooLarge` for a value that is nested too deeply.
    pub(super) fn convert(&mut self, json: &Json) -> Result<Value> {
        self.level(json, DEPTH_MAX)
    }

    fn level(&mut self, json: &Json, depth: usize) -> Result<Value> {
        if depth == 0 {
            bail!(
                TooLarge,
                "the conversation is nested deeper than {DEPTH_MAX} levels"
            );
        }
        self.size.values += 1;
        Ok(match json {
            Json::Null => Value::from(()),
            Json::Bool(truth) => Value::from(*truth),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Value::from(number),
                (None, Some(number)) => Value::from(number),
                (None, None) => Value::from(number.as_f64()),
            },
            Json::String(text) => Value::from(self.text(text)),
            Json::Array(items) => {
                let items = items.iter().map(|item| self.level(item, depth - 1));
                Value::from(items.collect::<Result<Vec<_>>>()?)
            }
            Json::Object(fields) => {
                let fields = fields
                    .iter()
                    .map(|(key, value)| Ok((self.text(key), self.level(value, depth - 1)?)));
                Value::from_pairs(fields.collect::<Result<Vec<_>>>()?)
            }
        })
    }

    fn text(&mut self, text: &str) -> String {
        self.size.bytes = self.size.bytes.saturating_add(text.len());
        (self.text)(text)
    }
}
