//! The streaming parser of model output.

use super::bodies::ParsedBody;
use super::chat_format::ChatFormat;
use super::formats::{Layout, Notation, Repeat};
use super::harmony::{self, Channel, Header};
use super::parts::{AssistantMessage, MessageDelta};
use super::pieces::{self, Head, ObjectScanner};

impl ChatFormat {
    /// Returns a parser for the output of one prompt. If the prompt ends with the marker that opens
    /// reasoning, the output starts within reasoning.
    pub fn parser(&self, prompt: &str) -> ChatParser {
        let state = match self.layout() {
            _ if self.starts_in_reasoning(prompt) => State::Reasoning,
            Layout::Parts => State::Start,
            Layout::Messages if harmony::is_open(prompt) => State::Content,
            Layout::Messages => State::Header,
        };
        ChatParser {
            format: self.clone(),
            pending: String::new(),
            opening: String::new(),
            trim_start: state == State::Reasoning,
            state,
            tool_calls: 0,
            written: Vec::new(),
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
    /// At the header of a message.
    Header,
    Content,
    Reasoning,
    /// After the marker that opens a list of tool calls.
    List,
    /// After the opening marker of a tool call.
    ToolCall,
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
    /// Opening markers of the last call and the white space before them: content if the call is
    /// malformed.
    opening: String,
    /// Whether leading white space of the next text is dropped: it separates two parts.
    trim_start: bool,
    /// Number of tool calls so far.
    tool_calls: usize,
    /// Channels that have text.
    written: Vec<Channel>,
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
        let is_waiting = self.state == State::ToolCall
            && !self.streams_arguments()
            && !text.contains(['}', ']', '>']);
        while !is_waiting && self.step() {}
        std::mem::take(&mut self.deltas)
    }

    /// Ends the output and returns the remaining increments.
    pub fn finish(&mut self) -> Vec<MessageDelta> {
        let pending = std::mem::take(&mut self.pending);
        match self.state {
            State::List | State::ToolCall if self.is_cut_head(&pending) => {}
            State::List | State::ToolCall => self.emit(&format!("{}{pending}", self.opening)),
            // A header has no text.
            State::Header if harmony::MARKERS.iter().any(|m| pending.contains(m)) => {}
            State::Close | State::Arguments(_) | State::CallEnd(_) | State::NextCall => {}
            State::Reasoning => self.emit(pending.trim_end()),
            _ if self.tool_calls > 0 => self.emit(pending.trim_end()),
            State::Start | State::Header | State::Content => self.emit(&pending),
        }
        std::mem::take(&mut self.deltas)
    }

    /// Whether the format has arguments as JSON text, and they are returned in pieces.
    fn streams_arguments(&self) -> bool {
        let notation = self.format.tool_calls.map(|format| format.notation);
        let is_json = match notation {
            Some(Notation::Object(..) | Notation::Named(_) | Notation::Recipient) => true,
            Some(Notation::Tagged(_) | Notation::Python | Notation::QuotedByTokens) | None => false,
        };
        is_json && self.arguments == ArgumentParts::Streamed
    }

    /// Whether the output ended in a call before its arguments.
    fn is_cut_head(&self, pending: &str) -> bool {
        let is_marked = !self.opening.is_empty();
        let format = self.format.tool_calls.filter(|_| is_marked);
        let head = format.map(|format| pieces::head(format, pending));
        self.streams_arguments() && head == Some(Head::Incomplete)
    }

    /// Performs one state transition. Returns whether another one may be possible.
    fn step(&mut self) -> bool {
        match self.state {
            State::Start => self.start(),
            State::Header => self.header(),
            State::Content | State::Reasoning if self.format.layout() == Layout::Messages => {
                self.message()
            }
            State::Content => self.content(),
            State::Reasoning => self.reasoning(),
            State::List => self.list(),
            State::ToolCall => self.call(),
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
            self.state = State::ToolCall;
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

    fn header(&mut self) -> bool {
        match harmony::header(&self.pending) {
            Header::Incomplete => return false,
            Header::Complete {
                recipient: Some(at),
                ..
            } if self.format.tool_calls.is_some() => {
                let rest = self.pending.split_off(at);
                self.opening = std::mem::replace(&mut self.pending, rest);
                self.state = State::ToolCall;
            }
            Header::Complete { channel, end, .. } => {
                self.pending.drain(..end);
                self.enter(match channel {
                    Channel::Reasoning => State::Reasoning,
                    Channel::Content => State::Content,
                });
            }
            Header::Other => {
                self.state = State::Content;
                let mut markers = harmony::MARKERS.iter();
                // A message would end at this marker.
                if let Some(marker) = markers.find(|marker| self.pending.starts_with(**marker)) {
                    self.pending.drain(..marker.len());
                    self.emit(marker);
                }
            }
        }
        true
    }

    /// Emits the text of a message.
    fn message(&mut self) -> bool {
        let boundaries = harmony::BOUNDARIES.iter();
        let found = boundaries.filter_map(|marker| Some((self.pending.find(marker)?, *marker)));
        let Some((at, marker)) = found.min_by_key(|(at, _)| *at) else {
            self.emit_unambiguous(harmony::BOUNDARIES);
            return false;
        };
        let is_end = harmony::ENDS.contains(&marker);
        let rest = self
            .pending
            .split_off(at + if is_end { marker.len() } else { 0 });
        let text = std::mem::replace(&mut self.pending, rest);
        self.emit(text[..at].trim_end());
        self.enter(State::Header);
        true
    }

    fn content(&mut self) -> bool {
        let format = self.format.tool_calls;
        let list = format.map_or("", |format| format.list[0]);
        let open = format.map_or(&[][..], |format| format.open);
        let markers = open.iter().chain([&list]).copied();
        let markers: Vec<&str> = markers.filter(|marker| !marker.is_empty()).collect();
        let matches = markers
            .iter()
            .filter_map(|marker| Some((self.pending.find(marker)?, *marker)));
        // If two markers match at the same position, the longer one wins.
        let first = matches.min_by_key(|(at, marker)| (*at, usize::MAX - marker.len()));
        let Some((at, marker)) = first else {
            self.emit_unambiguous(&markers);
            return false;
        };
        let rest = self.pending.split_off(at + marker.len());
        let text = std::mem::replace(&mut self.pending, rest);
        let before = text[..at].trim_end();
        self.opening = text[before.len()..].to_string();
        self.emit(before);
        self.state = match marker == list {
            true => State::List,
            false => State::ToolCall,
        };
        true
    }

    /// Consumes the opening marker of the first call in a list. Models may omit it.
    fn list(&mut self) -> bool {
        let open = self.format.tool_calls.map_or(&[][..], |format| format.open);
        let Some(rest) = after_marker(&self.pending, open) else {
            return false;
        };
        let rest = self.pending.split_off(self.pending.len() - rest.len());
        self.opening.push_str(&self.pending);
        self.pending = rest;
        self.state = State::ToolCall;
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

    fn call(&mut self) -> bool {
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
                let opening = std::mem::take(&mut self.opening);
                self.emit(&opening);
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
            Some(',') => {
                self.opening.clear();
                self.state = State::ToolCall;
            }
            Some(_) => self.enter(State::Close),
        }
        self.pending = rest;
        true
    }

    fn close(&mut self) -> bool {
        let (rest, next) = match self.format.layout() {
            Layout::Messages => (after_marker(&self.pending, harmony::ENDS), State::Header),
            Layout::Parts => (self.after_call(), State::Content),
        };
        let Some(rest) = rest else {
            return false;
        };
        self.pending = rest.to_string();
        self.enter(next);
        true
    }

    /// Returns the text after the markers that end a call and a list of calls, or `None` if more text is
    /// needed.
    fn after_call(&self) -> Option<&str> {
        let mut text = &*self.pending;
        if let Some(format) = self.format.tool_calls {
            if let Notation::Named(named) = format.notation {
                text = after_marker(text, &[named.after.trim_start()])?;
            }
            text = after_marker(text, &[format.close])?;
            text = after_marker(text, &[format.list[1]])?;
        }
        Some(text)
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
        let channel = match self.state {
            State::Reasoning => Channel::Reasoning,
            _ => Channel::Content,
        };
        let is_next = self.trim_start && self.format.layout() == Layout::Messages;
        let text = match is_next && self.written.contains(&channel) {
            // Between two messages of a channel.
            true => format!("\n\n{text}"),
            false => text.to_string(),
        };
        self.trim_start = false;
        if !self.written.contains(&channel) {
            self.written.push(channel);
        }
        self.deltas.push(match channel {
            Channel::Reasoning => MessageDelta::Reasoning(text),
            Channel::Content => MessageDelta::Content(text),
        });
    }
}

/// Returns the text after the first marker, which white space may precede, or the whole text without one.
/// Returns `None` if the text may be the start of a marker.
fn after_marker<'t>(text: &'t str, markers: &[&str]) -> Option<&'t str> {
    let start = text.trim_start();
    let rest = markers.iter().find_map(|marker| start.strip_prefix(marker));
    let may_begin = markers.iter().any(|marker| marker.starts_with(start));
    match rest {
        None if may_begin => None,
        rest => Some(rest.unwrap_or(text)),
    }
}
