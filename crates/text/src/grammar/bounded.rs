//! Grammars, as given by a caller and after validation.

use super::limits::check_length;
use super::{lark, schema};
use serde_json::Value as Json;
use tabla_core::error::{Error, ErrorKind, Result};
use tabla_core::utf8::without_bom;

/// A grammar that the output must match.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON that is valid for a JSON schema. Objects that declare properties and say nothing of others have
    /// no others; a schema without restrictions, such as `{}`, allows any object.
    JsonSchema(Json),
    /// Text that a regex matches completely.
    Regex(String),
    /// A grammar in llguidance's Lark syntax.
    Lark(String),
    /// A grammar in llama.cpp's GBNF syntax.
    Gbnf(String),
}

impl Grammar {
    /// Parses the text of a JSON schema. A byte order mark at its start is ignored.
    ///
    /// # Errors
    /// `Grammar` for text that is not JSON.
    pub fn from_schema_text(text: &str) -> Result<Self> {
        let schema = serde_json::from_str(without_bom(text));
        let schema = schema.map_err(|e| {
            Error::new(ErrorKind::Grammar, "the schema is not valid JSON").caused_by(e)
        })?;
        Ok(Self::JsonSchema(schema))
    }
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
            Grammar::JsonObject => Self::Schema(schema::prepare_schema(
                &serde_json::json!({"type": "object"}),
            )?),
            Grammar::JsonSchema(schema) => Self::Schema(schema::prepare_schema(schema)?),
            Grammar::Regex(regex) => Self::Lark(lark::from_regex(regex)?),
            Grammar::Lark(text) => {
                let text = without_bom(text);
                lark::check(text)?;
                Self::Lark(text.to_string())
            }
            Grammar::Gbnf(text) => {
                let text = without_bom(text);
                check_length("grammar", text)?;
                Self::Gbnf(text.to_string())
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
