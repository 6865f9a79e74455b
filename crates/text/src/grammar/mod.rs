//! Grammars for structured output: constrain which tokens may come next.
//!
//! A [`Grammar`] is the input of a caller. A [`GrammarEngine`] compiles grammars for the vocabulary
//! of one tokenizer. A [`Matcher`] tracks one output, token by token. The implementation is
//! llguidance, which only this module uses. Grammars are untrusted: this module enforces the limits
//! that llguidance does not, and compiles on a separate thread with a stack that suffices for them.

mod bounded;
mod check_types;
mod engine;
mod error;
mod gbnf;
mod lark;
mod limits;
mod matcher;
mod relax;
pub(crate) mod schema;
mod vocabulary;

#[cfg(test)]
mod schema_tests;
#[cfg(test)]
pub(crate) mod tests;

pub use bounded::Grammar;
pub use check_types::check_schema_types;
pub use engine::{CompiledGrammar, GrammarEngine};
pub use matcher::Matcher;
pub use relax::RelaxedSchema;
pub use schema::prepare_schema;
