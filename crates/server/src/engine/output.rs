//! Turns the pieces of a generation into events.

use super::events::{CallArguments, CalledTool, Delta, FinishReason, Output, TokenLogprob, Usage};
use super::request::{ChatOutput, Content, OutputFormat};
use crate::http::ids;
use std::collections::VecDeque;
use tabla::text::{ChatParser, MessageDelta, Tokenizer};
use tabla::{Finish, Logprob, Piece};

/// Output of one choice.
pub(crate) struct ChoiceOutput {
    choice: u32,
    parser: Option<Parser>,
    /// Log-probabilities of tokens whose text was held back, each with the number of bytes up to its end.
    held_back: VecDeque<(u64, TokenLogprob)>,
    /// Log-probabilities for the next text.
    pending: Vec<TokenLogprob>,
    /// Tokens for the next output.
    unsent: Vec<u32>,
    /// Number of bytes of all tokens, and of all text of pieces.
    token_bytes: u64,
    text_bytes: u64,
    /// Number of tokens, without stop tokens.
    pub(crate) tokens: u64,
    /// Number of tokens of the reasoning.
    pub(crate) reasoning: u64,
    is_reasoning: bool,
    /// Number of tool calls that began, and that ended.
    calls: u32,
    ended_calls: u32,
}

struct Parser {
    parser: ChatParser,
    calls_max: u32,
    content: Content,
}

impl ChoiceOutput {
    pub(crate) fn new(choice: u32, format: &OutputFormat) -> Self {
        let parser = match format {
            OutputFormat::Text => None,
            OutputFormat::Chat(ChatOutput {
                format,
                prompt_end,
                calls_max,
                content,
            }) => Some(Parser {
                parser: format.parser(prompt_end).stream_arguments(),
                calls_max: *calls_max,
                content: *content,
            }),
        };
        Self {
            choice,
            parser,
            held_back: VecDeque::new(),
            pending: Vec::new(),
            unsent: Vec::new(),
            token_bytes: 0,
            text_bytes: 0,
            tokens: 0,
            reasoning: 0,
            is_reasoning: false,
            calls: 0,
            ended_calls: 0,
        }
    }

    /// Returns the events of a piece.
    pub(crate) fn push(&mut self, piece: Piece<'_>, tokenizer: &Tokenizer) -> Vec<Output> {
        if !piece.is_flush {
            self.tokens += 1;
            self.unsent.push(piece.token);
        }
        self.text_bytes += piece.text.len() as u64;
        if !piece.is_flush {
            self.token_bytes += tokenizer.token_bytes(piece.token).len() as u64;
        }
        if let Some(logprob) = piece.logprob {
            let entry = TokenLogprob {
                token: piece.token,
                logprob,
                top: pairs(piece.top_logprobs),
            };
            self.held_back.push_back((self.token_bytes, entry));
        }
        let text_bytes = self.text_bytes;
        while let Some((_, entry)) = self.held_back.pop_front_if(|(end, _)| *end <= text_bytes) {
            self.pending.push(entry);
        }
        let Some(Parser { parser, .. }) = &mut self.parser else {
            return self.text(piece.text);
        };
        // A flushed piece repeats the last token, whose marker was parsed already.
        let deltas = match piece.is_flush {
            true => parser.push(piece.text),
            false => {
                let format = parser.format();
                let text = format.token_text(tokenizer, piece.token, piece.text);
                let text = text.into_owned();
                parser.push(&text)
            }
        };
        let outputs = self.deltas(deltas);
        if self.is_reasoning {
            self.reasoning += u64::from(!piece.is_flush);
        }
        outputs
    }

    /// Returns the tokens since the last output.
    pub(crate) fn take_tokens(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unsent)
    }

    /// Drops the log-probabilities of tokens that are part of a stop string.
    pub(crate) fn drop_held_back(&mut self) {
        self.held_back.clear();
    }

    /// Ends the output and returns the remaining events.
    pub(crate) fn finish(&mut self) -> Vec<Output> {
        let held_back = self.held_back.drain(..).map(|(_, entry)| entry);
        self.pending.extend(held_back);
        match &mut self.parser {
            Some(Parser {
                parser, content, ..
            }) => {
                let mut deltas = parser.finish();
                // The rest of a tool call that the limit has cut.
                if *content == Content::Forbidden {
                    deltas.retain(|delta| !matches!(delta, MessageDelta::Content(_)));
                }
                self.deltas(deltas)
            }
            None => self.text(""),
        }
    }

    /// Returns why the choice ended; `None` if it was cancelled.
    pub(crate) fn reason(&self, finish: Option<Finish>) -> FinishReason {
        if self.calls > self.ended_calls && finish == Some(Finish::Stop) {
            // A stop string cut the last call.
            return FinishReason::Length;
        }
        match finish {
            Some(Finish::Stop) if self.ended_calls > 0 => FinishReason::ToolCalls,
            Some(Finish::Stop) => FinishReason::Stop,
            Some(Finish::Context) => FinishReason::Context,
            // The generation is stopped when it has all permitted calls.
            Some(Finish::Callback) if self.ended_calls > 0 => FinishReason::ToolCalls,
            _ => FinishReason::Length,
        }
    }

    /// Whether the choice has all permitted tool calls.
    pub(crate) fn is_complete(&self) -> bool {
        let max = self
            .parser
            .as_ref()
            .map_or(u32::MAX, |parser| parser.calls_max);
        self.ended_calls >= max
    }

    fn text(&mut self, text: &str) -> Vec<Output> {
        if text.is_empty() && self.pending.is_empty() {
            return Vec::new();
        }
        vec![Output {
            choice: self.choice,
            delta: Delta::Text(text.to_string()),
            logprobs: std::mem::take(&mut self.pending),
            tokens: self.take_tokens(),
            usage: Usage::default(),
        }]
    }

    fn deltas(&mut self, deltas: Vec<MessageDelta>) -> Vec<Output> {
        let mut outputs = Vec::new();
        for delta in deltas {
            if self.is_complete() {
                break;
            }
            self.is_reasoning = matches!(delta, MessageDelta::Reasoning(_));
            // Reasoning and tool calls have no log-probabilities.
            let logprobs = std::mem::take(&mut self.pending);
            let choice = self.choice;
            let mut tokens = self.take_tokens();
            let mut output = |delta, logprobs| Output {
                choice,
                delta,
                logprobs,
                tokens: std::mem::take(&mut tokens),
                usage: Usage::default(),
            };
            match delta {
                MessageDelta::Content(text) => outputs.push(output(Delta::Text(text), logprobs)),
                MessageDelta::Reasoning(text) => {
                    outputs.push(output(Delta::Reasoning(text), Vec::new()));
                }
                MessageDelta::ToolCall(call) => {
                    let call = self.begin_call(call.id, call.name, call.arguments);
                    self.ended_calls += 1;
                    outputs.push(output(Delta::ToolCall(call), Vec::new()));
                    outputs.push(output(Delta::ToolCallEnd, Vec::new()));
                }
                MessageDelta::ToolCallStart { id, name } => {
                    let call = self.begin_call(id, name, String::new());
                    outputs.push(output(Delta::ToolCall(call), Vec::new()));
                }
                MessageDelta::ToolCallArguments(text) => {
                    let index = self.calls.saturating_sub(1);
                    let arguments = Delta::ToolCallArguments(CallArguments { index, text });
                    outputs.push(output(arguments, Vec::new()));
                }
                MessageDelta::ToolCallEnd => {
                    self.ended_calls += 1;
                    outputs.push(output(Delta::ToolCallEnd, Vec::new()));
                }
            }
        }
        outputs
    }

    fn begin_call(&mut self, id: Option<String>, name: String, arguments: String) -> CalledTool {
        self.calls += 1;
        CalledTool {
            index: self.calls - 1,
            id: id.unwrap_or_else(|| ids::new_id("call_")),
            name,
            arguments,
        }
    }
}

/// Returns tokens and their log-probabilities.
pub(super) fn pairs(top: &[Logprob]) -> Vec<(u32, f32)> {
    top.iter().map(|top| (top.token, top.logprob)).collect()
}
