//! Grammars, as they are given and as they are compiled.

use super::limits::within;
use super::{lark, schema};
use serde_json::Value as Json;
use tabla_core::error::Result;

/// What an answer has to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON that this schema accepts.
    JsonSchema(Json),
    /// A text that this expression matches from its start to its end.
    Regex(String),
    /// A text of this grammar in Lark's syntax, as llguidance has it.
    Lark(String),
    /// A text of this grammar in the syntax of llama.cpp.
    Gbnf(String),
}

/// A grammar that was held to its bounds, in one of the forms that are compiled.
#[derive(Clone, Debug)]
pub(super) enum Bounded {
    Schema(Json),
    Lark(String),
    Gbnf(String),
}

impl Bounded {
    pub(super) fn of(grammar: &Grammar) -> Result<Self> {
        Ok(match grammar {
            Grammar::JsonObject => {
                Self::Schema(schema::bounded(&serde_json::json!({"type": "object"}))?)
            }
            Grammar::JsonSchema(schema) => Self::Schema(schema::bounded(schema)?),
            Grammar::Regex(regex) => Self::Lark(lark::of_regex(regex)?),
            Grammar::Lark(text) => {
                lark::check(text)?;
                Self::Lark(text.clone())
            }
            Grammar::Gbnf(text) => {
                within("the grammar", text)?;
                Self::Gbnf(text.clone())
            }
        })
    }

    /// What tells it from others.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Schema(schema) => format!("schema {schema}"),
            Self::Lark(text) => format!("lark {text}"),
            Self::Gbnf(text) => format!("gbnf {text}"),
        }
    }
}
