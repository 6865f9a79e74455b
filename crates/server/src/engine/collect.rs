//! A whole answer: the fold of its events, so that it cannot differ from a streamed one.

use super::events::{
    CalledTool, Delta, Event, FinishReason, Finished, Output, PromptOutput, TokenLogprob, Usage,
};
use super::run::Run;
use crate::http::error::{ApiError, ApiResult};
use crate::http::sse::{EventSource, EventWriter};
use axum::http::StatusCode;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The choices, by index.
    pub(crate) choices: Vec<Choice>,
    /// The prompts that are part of the output.
    pub(crate) prompts: Vec<PromptOutput>,
    pub(crate) usage: Usage,
}

/// One choice of an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<CalledTool>,
    pub(crate) logprobs: Vec<TokenLogprob>,
    pub(crate) reason: Option<FinishReason>,
    pub(crate) stop_string: Option<String>,
    pub(crate) tokens: Vec<u32>,
    /// Tokens and times of the prompt and the choice.
    pub(crate) usage: Usage,
}

impl Choice {
    /// Appends an increment.
    fn push(&mut self, output: Output) {
        match output.delta {
            Delta::Text(text) => self.text.push_str(&text),
            Delta::Reasoning(text) => self.reasoning.push_str(&text),
            Delta::ToolCall(call) => self.calls.push(call),
            Delta::ToolCallArguments(arguments) => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(&arguments.text);
                }
            }
            Delta::ToolCallEnd => {}
        }
        self.logprobs.extend(output.logprobs);
        self.tokens.extend(output.tokens);
    }

    /// Ends the choice.
    fn finish(&mut self, finished: Finished) {
        self.reason = Some(finished.reason);
        self.stop_string = finished.stop_string;
        self.tokens.extend(finished.tokens);
        self.usage = finished.usage;
    }

    /// Why the choice ended.
    pub(crate) fn reason(&self) -> FinishReason {
        self.reason.unwrap_or(FinishReason::Length)
    }
}

/// Waits for the end of a generation of this many choices.
pub(crate) async fn collect(mut run: Run, choices: u32) -> ApiResult<Answer> {
    let mut prompts = Vec::new();
    let mut answers = vec![Choice::default(); choices as usize];
    while let Some(event) = run.next().await {
        match event? {
            Event::Prompt(prompt) => prompts.push(prompt),
            Event::Output(output) => {
                answers[output.choice as usize].push(output);
            }
            Event::Finished(finished) => {
                answers[finished.choice as usize].finish(finished);
            }
            Event::Progress(_) => {}
            Event::Done(usage) => {
                return Ok(Answer {
                    choices: answers,
                    prompts,
                    usage,
                });
            }
        }
    }
    Err(ended())
}

/// Passes all events of a generation to `writer`, which then has the whole answer: the fold of the stream
/// that it would have written.
pub(crate) async fn fold<S, W>(mut source: S, mut writer: W) -> ApiResult<W>
where
    S: EventSource,
    W: EventWriter<Event = S::Event>,
{
    let mut unsent = String::new();
    while let Some(event) = source.next().await {
        if writer.event(event?, &mut unsent) {
            return Ok(writer);
        }
        unsent.clear();
    }
    Err(ended())
}

/// Returns the error of a generation that ended without its last event.
fn ended() -> ApiError {
    let message = "the generation ended without a result";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}
