//! Values of JSON as values of the engine, their texts passed through a function on the way.

use super::budget::Size;
use minijinja::Value;
use serde_json::Value as Json;
use tabla_core::error::{Result, bail};

/// How deep a conversation nests at most; the parser of JSON has the same limit.
const DEPTH_MAX: usize = 128;

/// Reads values and counts what it reads.
pub(super) struct Reader<'a> {
    /// What becomes of each text, keys of objects among them.
    text: &'a dyn Fn(&str) -> String,
    size: Size,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a dyn Fn(&str) -> String) -> Self {
        Self {
            text,
            size: Size::default(),
        }
    }

    /// How much was read.
    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// A value.
    ///
    /// # Errors
    /// `TooLarge` for one that nests too deep.
    pub(super) fn read(&mut self, json: &Json) -> Result<Value> {
        self.level(json, DEPTH_MAX)
    }

    fn level(&mut self, json: &Json, depth: usize) -> Result<Value> {
        if depth == 0 {
            bail!(
                TooLarge,
                "the conversation nests deeper than {DEPTH_MAX} levels"
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
