//! Tokenizers, chat templates, tool-call parsing and grammars.
//!
//! The crate does no I/O and does not depend on models or devices. A [`Vocab`] is plain data, a
//! [`Tokenizer`] is built from it, and a [`Utf8Stream`] turns token bytes into valid UTF-8 text.

mod array;
mod base64;
mod bert;
mod bpe;
mod bytelevel;
mod charsmap;
mod chat;
mod fallback;
mod grammar;
mod hash;
mod index;
mod json;
mod kind;
mod merges;
mod model;
mod pair;
mod pattern;
mod pieces;
mod pre;
mod ranks;
mod sections;
mod spec;
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

pub use array::Section;
pub use chat::{
    AdaptedConversation, AllowedToolCalls, AssistantMessage, BUILTIN_TEMPLATES, ChatFormat,
    ChatParser, ChatTemplate, ChatTemplates, Conversation, MessageDelta, TemplateChoice,
    TemplateTokens, TextArguments, ToolCall,
};
pub use grammar::{
    CompiledGrammar, Grammar, GrammarEngine, Matcher, RelaxedSchema, check_schema_types,
    prepare_schema,
};
pub use json::{ConvertedVocab, ModelInputs};
pub use kind::VocabKind;
pub use pair::EncodedPair;
pub use pattern::FullMatch;
pub use ranks::RankedVocab;
pub use stops::StopStrings;
pub use stream::Utf8Stream;
pub use tokenizer::{DecodeOptions, EncodeOptions, SpecialTokens, Tokenizer};
pub use vocab::Vocab;
