//! The parts of an answer: content, reasoning and tool calls.

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What the model calls this call; most leave it to the application.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// A JSON object as text.
    pub arguments: String,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the user is to read.
    Content(String),
    /// What the model thought.
    Reasoning(String),
    /// A whole call.
    Call(Call),
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What the user is to read.
    pub content: String,
    /// What the model thought.
    pub reasoning: String,
    /// Calls, in their order.
    pub calls: Vec<Call>,
}
