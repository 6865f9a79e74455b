//! The output format of a chat template, and the streaming parser for it.

use super::bodies::ParsedBody;
use super::fallback;
use super::formats::{self, Notation, ReasoningFormat, Repeat, ToolCallFormat};
use super::parts::{AssistantMessage, MessageDelta};
use super::pieces::{self, Head, ObjectScanner};
use crate::Tokenizer;
use crate::chat::ChatTemplate;
use serde_json::Value as Json;
use std::borrow::Cow;

/// Format of the output for a chat template: the markers of tool calls and reasoning. The parsed
/// text must have control tokens as text, see [`ChatFormat::token_text`].
#[derive(Clone, Debug)]
pub struct ChatFormat {
    pub(super) tool_calls: Option<&'static ToolCallFormat>,
    reasoning: Option<&'static ReasoningFormat>,
    pub(super) tools: Vec<Json>,
    supports_tools: bool,
}

impl ChatFormat {
    /// Detects the format from the template source. Without `tools`, tool calls are not parsed.
    pub fn detect(template: &ChatTemplate, tools: &[Json]) -> Self {
        let tool_calls = formats::tool_calls(template.source());
        Self {
            tool_calls: tool_calls.filter(|_| !tools.is_empty()),
            reasoning: formats::reasoning(template.source()),
            tools: tools.to_vec(),
            supports_tools: tool_calls.is_some(),
        }
    }

    /// Same as [`detect`](Self::detect). If the template has no known tool-call format, tool calls
    /// have the format `<tool_call>{"name": ..., "arguments": ...}</tool_call>`, which
    /// [`fallback_tool_prompt`](Self::fallback_tool_prompt) describes to the model.
    pub fn detect_or_fallback(template: &ChatTemplate, tools: &[Json]) -> Self {
        let mut format = Self::detect(template, tools);
        if !format.supports_tools && !tools.is_empty() {
            format.tool_calls = Some(&formats::FALLBACK);
        }
        format
    }

    /// Returns whether the chat template has a known tool-call format, with or without tools.
    pub fn supports_tools(&self) -> bool {
        self.supports_tools
    }

    /// Returns the text for the system message that describes `tools` to a model whose chat template
    /// does not support tools, for [`detect_or_fallback`](Self::detect_or_fallback). Such a template
    /// must be rendered without tools.
    pub fn fallback_tool_prompt(tools: &[Json]) -> String {
        fallback::prompt(tools)
    }

    /// Returns the markers that open and close reasoning, for example `<think>` and `</think>`.
    /// `None` if the chat template has no known reasoning format.
    pub fn reasoning_markers(&self) -> Option<(&'static str, &'static str)> {
        self.reasoning.map(|format| (format.open, format.close))
    }

    /// Returns whether a prompt ends with the marker that opens reasoning, so that the output starts
    /// within reasoning.
    pub fn starts_in_reasoning(&self, prompt: &str) -> bool {
        self.reasoning
            .is_some_and(|format| prompt.trim_end().ends_with(format.open.trim_end()))
    }

    /// Returns the text of a token for [`ChatParser::push`]. Control tokens have no text of their own,
    /// so a control token that is a marker of this format is appended to `text`.
    pub fn token_text<'t>(&self, tokenizer: &Tokenizer, token: u32, text: &'t str) -> Cow<'t, str> {
        if !tokenizer.is_control(token) {
            return Cow::Borrowed(text);
        }
        match str::from_utf8(tokenizer.token_bytes_with_special(token)) {
            Ok(control) if self.markers().any(|marker| marker == control) => {
                Cow::Owned([text, control].concat())
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// Whether there is a tool of this name.
    fn has_tool(&self, name: &str) -> bool {
        let functions = self
            .tools
            .iter()
            .map(|tool| tool.get("function").unwrap_or(tool));
        let mut names = functions.filter_map(|function| function.get("name")?.as_str());
        names.any(|known| known == name)
    }

    /// The markers of tool calls and reasoning.
    pub(super) fn markers(&self) -> impl Iterator<Item = &'static str> {
        let tool_calls = self.tool_calls.iter();
        let tool_calls = tool_calls.flat_map(|format| {
            format
                .open
                .iter()
                .chain([&format.close])
                .chain(format.inner)
        });
        let reasoning = self.reasoning.iter().flat_map(|t| [&t.open, &t.close]);
        let all = tool_calls.chain(reasoning).map(|marker| marker.trim());
        all.filter(|marker| !marker.is_empty())
    }

    /// Returns a parser for the output of one prompt. If the prompt ends with the marker that opens
    /// reasoning, the output starts within reasoning.
    pub fn parser(&self, prompt: &str) -> ChatParser {
        let state = match self.starts_in_reasoning(prompt) {
            true => State::Reasoning,
            false => State::Start,
        };
        ChatParser {
            format: self.clone(),
            pending: String::new(),
            gap: String::new(),
            trim_start: state == State::Reasoning,
            state,
            tool_calls: 0,
            deltas: Vec::new(),
            arguments: ArgumentParts::Whole,
        }
    }

    /// Parses complete output.
    pub fn parse(&self, prompt: &str, output: &str) -> AssistantMessage {
        let mut parser = self.parser(prompt);
        let mut deltas = parser.push(output);
        deltas.extend(parser.finish());
        let mut message = AssistantMessage::default();
        for delta in deltas {
            message.push(delta);
        }
        message
    }
}

/// Parser state.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Only white space was read.
    Start,
    Content,
    Reasoning,
    /// After the opening marker of a tool call.
    ToolCall(&'static str),
    /// Within arguments that are returned in pieces.
    Arguments(ObjectScanner),
    /// After such arguments, in the rest of the call's object.
    CallEnd(ObjectScanner),
    /// After a call in a list.
    NextCall,
    /// After a call body, where the closing marker is expected.
    Close,
}

/// How the arguments of calls are returned.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ArgumentParts {
    Whole,
    Streamed,
}

/// Streaming parser of model output. Content is returned as soon as it cannot be part of a marker,
/// a tool call when it is complete. A malformed tool call is returned unchanged as content.
#[derive(Debug)]
pub struct ChatParser {
    format: ChatFormat,
    state: State,
    /// Text that is not classified yet.
    pending: String,
    /// White space before the opening marker of a call; it is content if the call is malformed.
    gap: String,
    /// Whether leading white space of the next text is dropped: it separates two parts.
    trim_start: bool,
    /// Number of tool calls so far.
    tool_calls: usize,
    deltas: Vec<MessageDelta>,
    arguments: ArgumentParts,
}

impl ChatParser {
    /// The format of the output.
    pub fn format(&self) -> &ChatFormat {
        &self.format
    }

    /// Returns the arguments of calls in pieces, where the format has them as JSON text after the name of
    /// the tool: [`MessageDelta::ToolCallStart`], [`MessageDelta::ToolCallArguments`] and
    /// [`MessageDelta::ToolCallEnd`] then take the place of [`MessageDelta::ToolCall`]. A call that has begun
    /// is not returned as content if it is malformed later.
    #[must_use]
    pub fn stream_arguments(mut self) -> Self {
        self.arguments = ArgumentParts::Streamed;
        self
    }

    /// Parses the next text and returns the increments that it completes.
    pub fn push(&mut self, text: &str) -> Vec<MessageDelta> {
        self.pending.push_str(text);
        // A call body is parsed from its start each time, so only when it may have ended.
        let is_waiting = matches!(self.state, State::ToolCall(_))
            && !self.streams_arguments()
            && !text.contains(['}', ']', '>']);
        while !is_waiting && self.step() {}
        std::mem::take(&mut self.deltas)
    }

    /// Ends the output and returns the remaining increments.
    pub fn finish(&mut self) -> Vec<MessageDelta> {
        let pending = std::mem::take(&mut self.pending);
        match self.state {
            State::ToolCall(open) if self.is_cut_head(open, &pending) => {}
            State::ToolCall(open) => self.emit(&format!("{}{open}{pending}", self.gap)),
            State::Close | State::Arguments(_) | State::CallEnd(_) | State::NextCall => {}
            State::Reasoning => self.emit(pending.trim_end()),
            State::Start | State::Content if self.tool_calls > 0 => self.emit(pending.trim_end()),
            State::Start | State::Content => self.emit(&pending),
        }
        std::mem::take(&mut self.deltas)
    }

    /// Whether the format has arguments as JSON text, and they are returned in pieces.
    fn streams_arguments(&self) -> bool {
        let notation = self.format.tool_calls.map(|format| format.notation);
        let is_json = matches!(notation, Some(Notation::Object(..) | Notation::Named(_)));
        is_json && self.arguments == ArgumentParts::Streamed
    }

    /// Whether the output ended in a call before its arguments.
    fn is_cut_head(&self, open: &str, pending: &str) -> bool {
        let format = self.format.tool_calls.filter(|_| !open.is_empty());
        let head = format.map(|format| pieces::head(format, pending));
        self.streams_arguments() && head == Some(Head::Incomplete)
    }

    /// Performs one state transition. Returns whether another one may be possible.
    fn step(&mut self) -> bool {
        match self.state {
            State::Start => self.start(),
            State::Content => self.content(),
            State::Reasoning => self.reasoning(),
            State::ToolCall(open) => self.call(open),
            State::Arguments(scanner) => self.arguments(scanner),
            State::CallEnd(scanner) => self.call_end(scanner),
            State::NextCall => self.next_call(),
            State::Close => self.close(),
        }
    }

    fn start(&mut self) -> bool {
        let text = self.pending.trim_start();
        if text.is_empty() {
            return false;
        }
        let is_bare = self.format.tool_calls.is_some_and(|format| format.is_bare);
        if is_bare && text.starts_with('{') {
            self.state = State::ToolCall("");
            return true;
        }
        let Some(reasoning) = self.format.reasoning else {
            self.state = State::Content;
            return true;
        };
        let open = reasoning.open.trim_end();
        if let Some(rest) = text.strip_prefix(open) {
            self.pending = rest.to_string();
            self.enter(State::Reasoning);
            return true;
        }
        let may_be = open.starts_with(text);
        if !may_be {
            self.state = State::Content;
        }
        !may_be
    }

    fn content(&mut self) -> bool {
        let open = self.format.tool_calls.map_or(&[][..], |format| format.open);
        let matches = open
            .iter()
            .filter_map(|open| Some((self.pending.find(open)?, *open)));
        // If two markers match at the same position, the longer one wins.
        let first = matches.min_by_key(|(at, open)| (*at, usize::MAX - open.len()));
        let Some((at, open)) = first else {
            self.emit_unambiguous(open);
            return false;
        };
        let rest = self.pending.split_off(at + open.len());
        let text = std::mem::replace(&mut self.pending, rest);
        let before = text[..at].trim_end();
        self.gap = text[before.len()..at].to_string();
        self.emit(before);
        self.state = State::ToolCall(open);
        true
    }

    fn reasoning(&mut self) -> bool {
        let close = self
            .format
            .reasoning
            .map_or("", |reasoning| reasoning.close);
        let Some(at) = self.pending.find(close) else {
            self.emit_unambiguous(&[close]);
            return false;
        };
        let rest = self.pending.split_off(at + close.len());
        let text = std::mem::replace(&mut self.pending, rest);
        self.emit(text[..at].trim_end());
        self.enter(State::Content);
        true
    }

    fn call(&mut self, open: &'static str) -> bool {
        let Some(format) = self.format.tool_calls else {
            return false;
        };
        // Without a marker, an object may be an answer.
        let is_tool = |name: &str| !format.is_bare || self.format.has_tool(name);
        if self.streams_arguments() {
            match pieces::head(format, &self.pending) {
                Head::Call { name, .. } if !is_tool(&name) => {}
                Head::Incomplete => return false,
                Head::Call {
                    name,
                    id,
                    arguments,
                } => {
                    self.tool_calls += 1;
                    self.deltas.push(MessageDelta::ToolCallStart { id, name });
                    self.pending.drain(..arguments);
                    self.state = State::Arguments(ObjectScanner::BEFORE);
                    return true;
                }
                Head::Other => {}
            }
        }
        match (format.body)(&self.pending, &self.format.tools) {
            ParsedBody::Incomplete => false,
            ParsedBody::ToolCalls(calls, length) if calls.iter().all(|c| is_tool(&c.name)) => {
                self.tool_calls += calls.len();
                self.deltas
                    .extend(calls.into_iter().map(MessageDelta::ToolCall));
                self.pending.drain(..length);
                self.enter(State::Close);
                true
            }
            ParsedBody::ToolCalls(..) | ParsedBody::Invalid => {
                self.state = State::Content;
                let gap = std::mem::take(&mut self.gap);
                self.emit(&format!("{gap}{open}"));
                true
            }
        }
    }

    fn arguments(&mut self, mut scanner: ObjectScanner) -> bool {
        let (text, end) = scanner.push(&self.pending);
        if !text.is_empty() {
            self.deltas.push(MessageDelta::ToolCallArguments(text));
        }
        let Some(end) = end else {
            self.pending.clear();
            self.state = State::Arguments(scanner);
            return false;
        };
        self.pending.drain(..end);
        self.deltas.push(MessageDelta::ToolCallEnd);
        match self.format.tool_calls.map(|format| format.notation) {
            Some(Notation::Object(..)) => self.state = State::CallEnd(ObjectScanner::WITHIN),
            _ => self.enter(State::Close),
        }
        true
    }

    fn call_end(&mut self, mut scanner: ObjectScanner) -> bool {
        let (_, end) = scanner.push(&self.pending);
        self.pending.drain(..end.unwrap_or(self.pending.len()));
        let repeat = self.format.tool_calls.map(|format| format.repeat);
        match (end, repeat) {
            (None, _) => self.state = State::CallEnd(scanner),
            (Some(_), Some(Repeat::List)) => self.state = State::NextCall,
            (Some(_), _) => self.enter(State::Close),
        }
        end.is_some()
    }

    fn next_call(&mut self) -> bool {
        let text = self.pending.trim_start();
        let rest = text.strip_prefix([',', ']']).unwrap_or(text).to_string();
        match text.chars().next() {
            None => return false,
            Some(',') => self.state = State::ToolCall(""),
            Some(_) => self.enter(State::Close),
        }
        self.pending = rest;
        true
    }

    fn close(&mut self) -> bool {
        let close = self.format.tool_calls.map_or("", |format| format.close);
        let text = self.pending.trim_start();
        if let Some(rest) = text.strip_prefix(close) {
            self.pending = rest.to_string();
        } else if close.starts_with(text) {
            return false;
        }
        self.enter(State::Content);
        true
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.trim_start = true;
    }

    /// Emits the pending text up to the first position where a marker may start, without the white
    /// space before it.
    fn emit_unambiguous(&mut self, markers: &[&str]) {
        let starts = self.pending.char_indices().map(|(at, _)| at);
        let may_begin = |at: &usize| markers.iter().any(|m| m.starts_with(&self.pending[*at..]));
        let end = starts.clone().find(may_begin).unwrap_or(self.pending.len());
        let end = self.pending[..end].trim_end().len();
        let rest = self.pending.split_off(end);
        let text = std::mem::replace(&mut self.pending, rest);
        self.emit(&text);
    }

    /// Emits text of the current part.
    fn emit(&mut self, text: &str) {
        let text = if self.trim_start {
            text.trim_start()
        } else {
            text
        };
        if text.is_empty() {
            return;
        }
        self.trim_start = false;
        self.deltas.push(match self.state {
            State::Reasoning => MessageDelta::Reasoning(text.to_string()),
            _ => MessageDelta::Content(text.to_string()),
        });
    }
}
