//! Grammars: which tokens may come next, so that an answer has the form that was asked for.
//!
//! A [`Grammar`] is what a caller writes down. A [`GrammarEngine`] knows the vocabulary of one
//! tokenizer and compiles grammars for it; a [`Matcher`] follows one answer, token by token.
//! The work is done by llguidance, which is known here alone. A grammar may come from a stranger:
//! what the library does not bound is bounded before it sees it, and it compiles on a thread of its
//! own, with a stack that is deep enough for all that the bounds let through.

mod bounded;
mod engine;
mod error;
mod gbnf;
mod lark;
mod limits;
mod matcher;
mod schema;
mod vocabulary;

#[cfg(test)]
mod tests;

pub use bounded::Grammar;
pub use engine::{CompiledGrammar, GrammarEngine};
pub use matcher::Matcher;
pub(crate) use schema::bounded as plain_schema;
