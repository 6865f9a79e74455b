//! Text to tokens and back: vocabularies from files, and streams that never cut a character.
//!
//! The module knows no model, file or device. A [`Vocab`] is plain data; a [`Tokenizer`] is built from
//! it; a [`Utf8Stream`] turns the bytes of tokens into text that a terminal can show at any moment.

mod bert;
mod bpe;
mod bytelevel;
mod charsmap;
mod chat;
mod fallback;
mod grammar;
mod index;
mod json;
mod kind;
mod model;
mod pattern;
mod pieces;
mod plan;
mod pre;
mod special;
mod spm;
mod steps;
mod stops;
mod stream;
mod tokenizer;
mod unigram;
mod vocab;
mod wordpiece;

#[cfg(test)]
mod tests;

pub use chat::{
    Answer, AnswerFormat, AnswerStream, Call, ChatTemplate, ChatTemplates, Choice, Conversation,
    Ends, FALLBACKS, Part,
};
pub use grammar::{CompiledGrammar, Grammar, GrammarEngine, Matcher};
pub use kind::Kind;
pub use stops::StopStrings;
pub use stream::Utf8Stream;
pub use tokenizer::{Decode, Encode, Specials, Tokenizer};
pub use vocab::Vocab;
