//! Parses model output into reasoning, content and tool calls, in the format of each model family.

mod bodies;
mod chat_format;
pub(super) mod fallback;
mod formats;
mod grammars;
mod harmony;
mod lark;
mod parameters;
mod parts;
mod pieces;
mod python;
mod quoted;
mod stream;
mod tags;
mod texts;

#[cfg(test)]
mod format_grammar_tests;
#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod grammar_tests;
#[cfg(test)]
mod harmony_tests;
#[cfg(test)]
mod strict_tests;
#[cfg(test)]
mod tests;

pub use chat_format::ChatFormat;
pub use grammars::AllowedToolCalls;
pub use parts::{AssistantMessage, MessageDelta, ToolCall};
pub use stream::ChatParser;
