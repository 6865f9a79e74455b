//! A conversation, independent of the API.

use super::tools::{Tool, ToolChoice};
use serde_json::{Map, Value};
use tabla::text::Grammar;

/// A conversation and how to answer it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chat {
    /// Normalized messages.
    pub(crate) messages: Vec<Value>,
    /// Field of the first tool call whose arguments are no JSON object, which some chat templates cannot
    /// render: the answer with the call was cut.
    pub(crate) text_arguments: Option<String>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) tool_choice: ToolChoice,
    /// Whether the request permits several tool calls; see [`Chat::permits_several_calls`].
    pub(crate) parallel_calls: bool,
    pub(crate) response: ResponseFormat,
    /// Effort of the reasoning; `none` disables it.
    pub(crate) reasoning_effort: Option<String>,
    /// Further variables of the chat template.
    pub(crate) variables: Map<String, Value>,
    pub(crate) prompt_end: PromptEnd,
}

/// How the prompt of a conversation ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PromptEnd {
    /// With the last message if it is a text of the assistant, which the answer continues, otherwise with the start of
    /// an answer.
    #[default]
    Automatic,
    /// With the last message, a text of the assistant, which the answer continues.
    Continued,
    /// With the start of an answer.
    Answer,
    /// With the last message.
    Conversation,
}

impl Chat {
    /// Returns whether an answer may have several tool calls. A named tool is called once.
    pub(crate) fn permits_several_calls(&self) -> bool {
        self.parallel_calls && !matches!(self.tool_choice, ToolChoice::Named(_))
    }

    /// Returns whether the answer continues the last message: a text of the assistant.
    pub(crate) fn continues_answer(&self) -> bool {
        let can_continue = matches!(self.prompt_end, PromptEnd::Automatic | PromptEnd::Continued);
        can_continue && self.ends_with_answer()
    }

    /// Whether the last message is a text of the assistant.
    pub(crate) fn ends_with_answer(&self) -> bool {
        self.messages.last().is_some_and(|message| {
            message["role"] == "assistant" && message.get("tool_calls").is_none()
        })
    }
}

/// Format of the answer, with the field of the request for errors.
#[derive(Clone, Debug, Default)]
pub(crate) enum ResponseFormat {
    /// Any text.
    #[default]
    Text,
    /// Text that matches a grammar.
    Grammar(&'static str, Grammar),
    /// JSON that matches the parts of a schema that a grammar can express.
    RelaxedSchema(&'static str, Value),
}

impl ResponseFormat {
    /// Returns the field of the request; `None` for any text.
    pub(crate) fn field(&self) -> Option<&'static str> {
        match self {
            Self::Text => None,
            Self::Grammar(field, _) | Self::RelaxedSchema(field, _) => Some(field),
        }
    }
}
