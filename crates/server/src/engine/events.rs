//! Events of a running generation, independent of the API.

use std::time::Duration;

/// Event of a generation.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A prompt that is part of the output.
    Prompt(PromptOutput),
    /// Output of a choice.
    Output(Output),
    /// Part of a prompt was processed, if the progress is requested.
    Progress(Progress),
    /// A choice ended.
    Finished(Finished),
    /// All choices ended.
    Done(Usage),
}

/// A prompt that is part of the output.
#[derive(Clone, Debug)]
pub(crate) struct PromptOutput {
    /// Index of its first choice.
    pub(crate) choice: u32,
    pub(crate) tokens: Vec<u32>,
    /// Log-probabilities of all tokens after the first, if requested.
    pub(crate) logprobs: Vec<TokenLogprob>,
}

/// Progress of a prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Index of the first choice of the prompt.
    pub(crate) choice: u32,
    /// Number of processed tokens, with those from the prefix cache.
    pub(crate) processed: u64,
    /// Tokens of the prompt, and the time so far.
    pub(crate) usage: Usage,
}

/// Output of one or more tokens.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// Index of the choice.
    pub(crate) choice: u32,
    /// Text, reasoning or tool calls.
    pub(crate) delta: Delta,
    /// Log-probabilities of the tokens of text, if requested.
    pub(crate) logprobs: Vec<TokenLogprob>,
    /// Tokens since the last output.
    pub(crate) tokens: Vec<u32>,
    /// Tokens and times of the prompt and the choice so far.
    pub(crate) usage: Usage,
}

/// An increment of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Delta {
    /// Text for the user.
    Text(String),
    /// Reasoning.
    Reasoning(String),
    /// The beginning of a tool call, with its first arguments.
    ToolCall(CalledTool),
    /// Further arguments of the last tool call.
    ToolCallArguments(CallArguments),
    /// The end of the last tool call. It is missing if the output was cut within the call.
    ToolCallEnd,
}

/// A tool call of the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CalledTool {
    /// Index among the calls of the choice.
    pub(crate) index: u32,
    /// Identifier, unique within the conversation.
    pub(crate) id: String,
    /// Name of the tool.
    pub(crate) name: String,
    /// Arguments as JSON text.
    pub(crate) arguments: String,
}

/// Further arguments of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallArguments {
    /// Index of the call among the calls of the choice.
    pub(crate) index: u32,
    /// Part of a JSON text.
    pub(crate) text: String,
}

/// Log-probability of a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenLogprob {
    pub(crate) token: u32,
    pub(crate) logprob: f32,
    /// Likeliest tokens, in descending order.
    pub(crate) top: Vec<(u32, f32)>,
}

/// End of a choice.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    /// Index of the choice.
    pub(crate) choice: u32,
    pub(crate) reason: FinishReason,
    /// The stop string that ended it.
    pub(crate) stop_string: Option<String>,
    /// Tokens since the last output.
    pub(crate) tokens: Vec<u32>,
    /// Tokens and times of the prompt and the choice.
    pub(crate) usage: Usage,
}

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// A stop token, a stop string, or the end of the grammar.
    Stop,
    /// The maximum number of tokens, or the deadline of the request.
    Length,
    /// The context is full.
    Context,
    /// The answer ends with tool calls.
    ToolCalls,
}

impl FinishReason {
    /// Word in OpenAI's APIs.
    pub(crate) fn openai(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length | Self::Context => "length",
            Self::ToolCalls => "tool_calls",
        }
    }
}

/// Tokens of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PromptUsage {
    /// Number of tokens.
    pub(crate) tokens: u64,
    /// Number of them from the prefix cache.
    pub(crate) cached: u64,
}

/// Tokens and times of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) prompt: PromptUsage,
    /// Number of generated tokens of all choices, without stop tokens.
    pub(crate) generated: u64,
    /// Number of them that are reasoning.
    pub(crate) reasoning: u64,
    /// Time in which the prompt was processed.
    pub(crate) prompt_time: Duration,
    /// Time in which tokens were generated.
    pub(crate) generation_time: Duration,
}

impl std::ops::AddAssign for Usage {
    /// Adds the tokens; prompts run at the same time, so the longest times count.
    fn add_assign(&mut self, other: Self) {
        self.prompt.tokens += other.prompt.tokens;
        self.prompt.cached += other.prompt.cached;
        self.generated += other.generated;
        self.reasoning += other.reasoning;
        self.prompt_time = self.prompt_time.max(other.prompt_time);
        self.generation_time = self.generation_time.max(other.generation_time);
    }
}
