//! Parses model output into reasoning, content and tool calls, in the format of each model family.

mod bodies;
mod forced;
mod formats;
mod parts;
mod stream;

#[cfg(test)]
mod tests;

pub use parts::{AssistantMessage, MessageDelta, ToolCall};
pub use stream::{ChatFormat, ChatParser};
