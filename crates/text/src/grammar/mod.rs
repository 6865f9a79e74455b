//! Grammars: which tokens may come next, so that an answer has the form that was asked for.
//!
//! A [`Grammar`] is what a caller writes down. A [`GrammarEngine`] knows the vocabulary of one
//! tokenizer and compiles grammars for it; a [`Matcher`] follows one answer, token by token.
//! The work is done by llguidance, which is known here alone. A grammar may come from a stranger:
//! what the library does not bound is bounded before it sees it, and it compiles on a thread of its
//! own, with a stack that is deep enough for all that the bounds let through.

mod engine;
mod gbnf;
mod lark;
mod matcher;
mod schema;
mod vocabulary;

#[cfg(test)]
mod tests;

pub use engine::{CompiledGrammar, GrammarEngine};
pub use matcher::Matcher;
pub(crate) use schema::bounded as plain_schema;

use serde_json::Value as Json;
use tabla_core::error::{Error, ErrorKind, Result, bail};

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

/// Bytes of a grammar or an expression at most; of a schema there may be more.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// A grammar that was held to its bounds, in one of the forms that are compiled.
#[derive(Clone, Debug)]
enum Bounded {
    Schema(Json),
    Lark(String),
    Gbnf(String),
}

impl Bounded {
    fn of(grammar: &Grammar) -> Result<Self> {
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
    fn key(&self) -> String {
        match self {
            Self::Schema(schema) => format!("schema {schema}"),
            Self::Lark(text) => format!("lark {text}"),
            Self::Gbnf(text) => format!("gbnf {text}"),
        }
    }
}

/// Holds the text of a grammar against its limit.
fn within(what: &str, text: &str) -> Result<()> {
    if text.len() > TEXT_BYTES_MAX {
        bail!(
            TooLarge,
            "{what}: {} bytes are over the limit of {TEXT_BYTES_MAX}",
            text.len()
        );
    }
    Ok(())
}

/// An error of the library, without the traces that it puts behind its sentences.
fn refused(error: impl std::fmt::Display) -> Error {
    let text = error.to_string();
    let end = ["\n<backtrace>", "\n<state>", "\n<non-verbose/>"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    Error::new(ErrorKind::Grammar, text[..end.unwrap_or(text.len())].trim())
}
