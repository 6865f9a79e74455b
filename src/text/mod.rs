//! Text to tokens and back: vocabularies from files, and streams that never cut a character.
//!
//! The module knows no model, file or device. A [`Vocab`] is plain data; a [`Tokenizer`] is built from
//! it; a [`Utf8Stream`] turns the bytes of tokens into text that a terminal can show at any moment.

mod bytelevel;
mod chat;
mod encoder;
mod pieces;
mod pre;
mod special;
mod split;
mod spm;
mod stream;
mod tokenizer;
mod vocab;

#[cfg(test)]
mod tests;

pub use chat::{ChatTemplate, ChatTemplates, Choice, Conversation, Ends, FALLBACKS};
pub use stream::Utf8Stream;
pub use tokenizer::{Decode, Encode, Specials, Tokenizer};
pub use vocab::{Kind, Vocab};
