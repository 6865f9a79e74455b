//! Chat templates: from a conversation to the text, or the ids, that a model was trained on.
//!
//! A template is a program in Jinja that comes with a model. It is run by minijinja the way
//! `transformers` runs it, with limits on time and memory: the author of a file is a stranger.

mod budget;
mod calls;
mod engine;
mod fallback;
mod filters;
mod library;
mod python;
mod source;
mod taint;
mod template;
mod time;
mod values;

#[cfg(test)]
mod tests;

pub use calls::{Answer, AnswerFormat, AnswerStream, Call, Part};
pub use fallback::FALLBACKS;
pub use library::{ChatTemplates, Choice};
pub use template::{ChatTemplate, Conversation, Ends};
