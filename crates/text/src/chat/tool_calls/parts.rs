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
    /// The beginning of a tool call whose arguments follow in pieces; see
    /// [`ChatParser::stream_arguments`](super::ChatParser::stream_arguments).
    ToolCallStart {
        /// Id that the model generated for the call.
        id: Option<String>,
        /// Name of the tool.
        name: String,
    },
    /// Further arguments of the last tool call: a part of the text of a JSON object.
    ToolCallArguments(String),
    /// The end of the last tool call. It is missing if the output ends within the call.
    ToolCallEnd,
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

impl AssistantMessage {
    /// Appends an increment.
    pub fn push(&mut self, delta: MessageDelta) {
        match delta {
            MessageDelta::Content(text) => self.content.push_str(&text),
            MessageDelta::Reasoning(text) => self.reasoning.push_str(&text),
            MessageDelta::ToolCall(call) => self.tool_calls.push(call),
            MessageDelta::ToolCallStart { id, name } => {
                let arguments = String::new();
                self.tool_calls.push(ToolCall {
                    id,
                    name,
                    arguments,
                });
            }
            MessageDelta::ToolCallArguments(text) => {
                if let Some(call) = self.tool_calls.last_mut() {
                    call.arguments.push_str(&text);
                }
            }
            MessageDelta::ToolCallEnd => {}
        }
    }
}
