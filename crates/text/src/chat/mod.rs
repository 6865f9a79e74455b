//! Chat templates: render a conversation to the prompt text or token ids that a model expects.
//!
//! A template is a Jinja program from a model file. minijinja renders it with the semantics of
//! `transformers`. Templates are untrusted, so time and memory are limited.

mod adapt;
mod budget;
mod builtin;
mod engine;
mod escape;
mod filters;
mod library;
mod python;
mod source;
mod template;
mod time;
mod tool_calls;
mod values;

#[cfg(test)]
mod tests;

pub use adapt::AdaptedConversation;
pub use builtin::BUILTIN_TEMPLATES;
pub use library::{ChatTemplates, TemplateChoice};
pub use template::{ChatTemplate, Conversation, TemplateTokens, TextArguments};
pub use tool_calls::{
    AllowedToolCalls, AssistantMessage, ChatFormat, ChatParser, MessageDelta, ToolCall,
};
