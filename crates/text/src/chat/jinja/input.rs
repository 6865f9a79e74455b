//! Conversion of JSON values to values of templates, with a function applied to each string.

use super::budget::ConversationSize;
use super::build::Entries;
use super::failure::{Outcome, too_large};
use super::heap::Heap;
use super::value::Value;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::sync::Arc;

/// Maximum nesting depth of a conversation, as in `serde_json`.
const DEPTH_MAX: usize = 128;

/// The value of a variable.
#[derive(Debug)]
pub(in crate::chat) enum Input<'a> {
    None,
    Bool(bool),
    /// A text of the model, to which the function is not applied.
    Token(&'a str),
    Json(&'a Json),
    List(Vec<Cow<'a, Json>>),
}

/// A function that is applied to each string, including the keys of objects.
pub(in crate::chat) type TextFunction<'f> = &'f (dyn Fn(&str) -> String + Sync);

impl Input<'_> {
    /// Adds the size of this value to `size`. Fails if it is nested too deeply.
    pub(super) fn measure(&self, size: &mut ConversationSize) -> Outcome<()> {
        match self {
            Self::None | Self::Bool(_) | Self::Token(_) => Ok(()),
            Self::Json(json) => measure(json, size, DEPTH_MAX),
            Self::List(items) => items
                .iter()
                .try_for_each(|item| measure(item, size, DEPTH_MAX)),
        }
    }

    pub(super) fn value(&self, heap: &Heap, text: TextFunction<'_>) -> Outcome<Value> {
        Ok(match self {
            Self::None => Value::None,
            Self::Bool(value) => Value::Bool(*value),
            Self::Token(token) => Value::Str(Arc::from(*token)),
            Self::Json(json) => value(heap, json, text)?,
            Self::List(list) => {
                let mut items = heap.items();
                for item in list {
                    items.push(value(heap, item, text)?)?;
                }
                items.list()?
            }
        })
    }
}

fn measure(json: &Json, size: &mut ConversationSize, depth: usize) -> Outcome<()> {
    let Some(depth) = depth.checked_sub(1) else {
        return too_large(format_args!(
            "the conversation is nested deeper than {DEPTH_MAX} levels"
        ));
    };
    size.values = size.values.saturating_add(1);
    match json {
        Json::String(text) => size.bytes = size.bytes.saturating_add(text.len()),
        Json::Array(items) => {
            for item in items {
                measure(item, size, depth)?;
            }
        }
        Json::Object(fields) => {
            for (key, value) in fields {
                size.bytes = size.bytes.saturating_add(key.len());
                measure(value, size, depth)?;
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
    Ok(())
}

fn value(heap: &Heap, json: &Json, text: TextFunction<'_>) -> Outcome<Value> {
    Ok(match json {
        Json::Null => Value::None,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number.into()),
            (None, Some(number)) => Value::Int(number.into()),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(string) => heap.text(&text(string))?,
        Json::Array(array) => {
            let mut items = heap.items();
            for item in array {
                items.push(value(heap, item, text)?)?;
            }
            items.list()?
        }
        Json::Object(fields) => {
            let mut entries = Entries::new(&heap.budget);
            for (key, field) in fields {
                entries.insert(heap.text(&text(key))?, value(heap, field, text)?)?;
            }
            entries.dict()?
        }
    })
}
