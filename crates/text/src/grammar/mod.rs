//! Grammars for structured output: constrain which tokens may come next.
//!
//! A [`Grammar`] is the input of a caller. A [`GrammarEngine`] compiles grammars for the vocabulary
//! of one tokenizer. A [`Matcher`] tracks one output, token by token. The implementation is
//! llguidance, which only this module uses. Grammars are untrusted: this module enforces the limits
//! that llguidance does not, and compiles on a separate thread with a stack that suffices for them.

mod bounded;
mod close;
mod engine;
mod error;
mod gbnf;
mod lark;
mod limits;
mod matcher;
mod relax;
mod repair;
mod schema;
mod types;
mod vocabulary;

#[cfg(test)]
mod tests;

pub use bounded::Grammar;
pub use close::close_objects;
pub use engine::{CompiledGrammar, GrammarEngine};
pub use matcher::Matcher;
pub use relax::RelaxedSchema;
pub(crate) use schema::resolve as resolve_schema;
pub use types::check_schema_types;
