//! Chat templates: render a conversation to the prompt text or token ids that a model expects.
//!
//! A template is a Jinja program from a model file, rendered as in `transformers`. Templates are
//! untrusted, so time and memory are limited.

mod adapt;
mod builtin;
mod escape;
mod jinja;
mod library;
mod template;
mod time;
mod tool_calls;

#[cfg(test)]
mod tests;

pub use adapt::AdaptedConversation;
pub use builtin::BUILTIN_TEMPLATES;
pub use library::{ChatTemplates, TemplateChoice};
pub use template::{ChatTemplate, Conversation, TemplateTokens, TextArguments};
pub use tool_calls::{
    AllowedToolCalls, AssistantMessage, ChatFormat, ChatParser, MessageDelta, ToolCall,
};
