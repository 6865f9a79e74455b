//! A generation, independent of the API that requested it.

use super::admission::Ticket;
use crate::http::deadline::Deadline;
use crate::http::record::Record;
use crate::models::Lease;
use std::sync::Arc;
use std::time::Duration;
use tabla::GenerateOptions;
use tabla::text::ChatFormat;

/// A prepared generation.
pub(crate) struct Generate {
    /// The model, which is not unloaded before the generation ends.
    pub(crate) lease: Lease,
    /// Place in the queue.
    pub(crate) ticket: Ticket,
    /// Token ids of the prompts.
    pub(crate) prompts: Vec<Vec<u32>>,
    /// Options of the first choice; choice `i` of a prompt has seed `seed + i`.
    pub(crate) options: GenerateOptions,
    /// Number of choices of each prompt; 0: only the prompt is processed.
    pub(crate) choices: u32,
    /// Number of alternatives at each position of the prompt, if the prompt is part of the output.
    pub(crate) echo: Option<Echo>,
    /// Format of the output.
    pub(crate) format: OutputFormat,
    pub(crate) extras: Extras,
    pub(crate) deadline: Deadline,
    pub(crate) record: Arc<Record>,
}

/// Options of llama.cpp that the server implements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras {
    /// Whether the progress of the prompt is reported.
    pub(crate) progress: bool,
    pub(crate) lines: LineRules,
}

/// Rules that end an answer at the end of a line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineRules {
    /// Minimum number of spaces and tabs at the start of a line after the first.
    pub(crate) indent: u32,
    /// Time of the generation after which the next line break ends the answer.
    pub(crate) time: Option<Duration>,
}

/// Output of the prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Echo {
    /// Only its text.
    Text,
    /// Its text, the log-probabilities of its tokens, and this number of alternatives.
    Logprobs(u32),
}

/// How output tokens become events.
#[derive(Clone)]
pub(crate) enum OutputFormat {
    /// All text is output.
    Text,
    /// Text with reasoning and tool calls.
    Chat(ChatOutput),
}

/// How the output of a chat model is parsed.
#[derive(Clone)]
pub(crate) struct ChatOutput {
    pub(crate) format: ChatFormat,
    /// Text at the end of the prompt, which may open the reasoning.
    pub(crate) prompt_end: String,
    /// Maximum number of tool calls.
    pub(crate) calls_max: u32,
    pub(crate) content: Content,
}

/// Whether an answer may have text next to tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Allowed,
    /// A tool call is forced.
    Forbidden,
}
