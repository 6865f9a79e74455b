//! Grammars, as given by a caller and after validation.

use super::limits::check_length;
use super::{lark, schema};
use serde_json::Value as Json;
use tabla_core::error::Result;

/// A grammar that the output must match.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON that is valid for a JSON schema.
    JsonSchema(Json),
    /// Text that a regex matches completely.
    Regex(String),
    /// A grammar in llguidance's Lark syntax.
    Lark(String),
    /// A grammar in llama.cpp's GBNF syntax.
    Gbnf(String),
}

/// A grammar within the limits, in a form that the engine compiles.
#[derive(Clone, Debug)]
pub(super) enum CheckedGrammar {
    Schema(Json),
    Lark(String),
    Gbnf(String),
}

impl CheckedGrammar {
    pub(super) fn new(grammar: &Grammar) -> Result<Self> {
        Ok(match grammar {
            Grammar::JsonObject => {
                Self::Schema(schema::resolve(&serde_json::json!({"type": "object"}))?)
            }
            Grammar::JsonSchema(schema) => Self::Schema(schema::resolve(schema)?),
            Grammar::Regex(regex) => Self::Lark(lark::from_regex(regex)?),
            Grammar::Lark(text) => {
                lark::check(text)?;
                Self::Lark(text.clone())
            }
            Grammar::Gbnf(text) => {
                check_length("grammar", text)?;
                Self::Gbnf(text.clone())
            }
        })
    }

    /// The key of the grammar in the cache.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Schema(schema) => format!("schema {schema}"),
            Self::Lark(text) => format!("lark {text}"),
            Self::Gbnf(text) => format!("gbnf {text}"),
        }
    }
}
