//! The parts of an assistant message: content, reasoning and tool calls.

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Id that the model generated for the call; most models generate none.
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// Arguments as the text of a JSON object.
    pub arguments: String,
}

/// An increment of an assistant message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageDelta {
    /// Text for the user.
    Content(String),
    /// Reasoning text.
    Reasoning(String),
    /// A complete tool call.
    ToolCall(ToolCall),
}

/// A complete assistant message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssistantMessage {
    /// Text for the user.
    pub content: String,
    /// Reasoning text.
    pub reasoning: String,
    /// Tool calls, in order.
    pub tool_calls: Vec<ToolCall>,
}
