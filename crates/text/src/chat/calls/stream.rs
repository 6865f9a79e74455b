//! The format of a template's answers, and the reader of one answer in it.

use super::bodies::Read;
use super::formats::{self, Calls, Reasoning};
use super::parts::{Answer, Part};
use crate::Tokenizer;
use crate::chat::ChatTemplate;
use serde_json::Value as Json;
use std::borrow::Cow;

/// How the answers to a template are written. Their text has control tokens spelt out, as
/// [`AnswerFormat::spelt_out`] does.
#[derive(Clone, Debug)]
pub struct AnswerFormat {
    pub(super) calls: Option<&'static Calls>,
    reasoning: Option<&'static Reasoning>,
    pub(super) tools: Vec<Json>,
}

impl AnswerFormat {
    /// The format of a template's family, told from the template's text, for these tools; without
    /// tools nothing is a call.
    pub fn of(template: &ChatTemplate, tools: &[Json]) -> Self {
        let calls = formats::calls(template.source());
        Self {
            calls: calls.filter(|_| !tools.is_empty()),
            reasoning: formats::reasoning(template.source()),
            tools: tools.to_vec(),
        }
    }

    /// The text of a token in an answer, and what the token is where that begins or ends calls and
    /// reasoning: control tokens have no text of their own.
    pub fn spelt_out<'t>(&self, tokenizer: &Tokenizer, token: u32, text: &'t str) -> Cow<'t, str> {
        if !tokenizer.is_control(token) {
            return Cow::Borrowed(text);
        }
        match str::from_utf8(tokenizer.token_spelling(token)) {
            Ok(spelling) if self.markers().any(|marker| marker == spelling) => {
                Cow::Owned([text, spelling].concat())
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// What begins calls and reasoning, and what ends them.
    pub(super) fn markers(&self) -> impl Iterator<Item = &'static str> {
        let calls = self.calls.iter();
        let calls =
            calls.flat_map(|calls| calls.open.iter().chain([&calls.close]).chain(calls.inner));
        let reasoning = self.reasoning.iter().flat_map(|t| [&t.open, &t.close]);
        let all = calls.chain(reasoning).map(|marker| marker.trim());
        all.filter(|marker| !marker.is_empty())
    }

    /// A reader of one answer to a prompt, which may end within reasoning.
    pub fn stream(&self, prompt: &str) -> AnswerStream {
        let thinks =
            |reasoning: &&Reasoning| prompt.trim_end().ends_with(reasoning.open.trim_end());
        let mode = match self.reasoning.filter(thinks) {
            Some(_) => Mode::Reasoning,
            None => Mode::Start,
        };
        AnswerStream {
            format: self.clone(),
            held: String::new(),
            gap: String::new(),
            is_fresh: mode == Mode::Reasoning,
            mode,
            calls: 0,
            parts: Vec::new(),
        }
    }

    /// Reads a whole answer.
    pub fn parse(&self, prompt: &str, answer: &str) -> Answer {
        let mut stream = self.stream(prompt);
        let mut parts = stream.push(answer);
        parts.extend(stream.finish());
        let mut answer = Answer::default();
        for part in parts {
            match part {
                Part::Content(text) => answer.content.push_str(&text),
                Part::Reasoning(text) => answer.reasoning.push_str(&text),
                Part::Call(call) => answer.calls.push(call),
            }
        }
        answer
    }
}

/// Where a reader is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Nothing but white space was there.
    Start,
    Content,
    Reasoning,
    /// Behind what begins a call.
    Call(&'static str),
    /// Behind the call, where its end should be.
    Close,
}

/// Reads one answer piece by piece: content comes out as soon as it surely is content, a call when
/// it is whole. What begins like a call and is none is content, as the model wrote it.
#[derive(Debug)]
pub struct AnswerStream {
    format: AnswerFormat,
    mode: Mode,
    /// Text that may be a part of something else.
    held: String,
    /// White space in front of what begins a call: content, if it is no call.
    gap: String,
    /// Whether white space comes from between the parts and belongs to none.
    is_fresh: bool,
    /// Calls so far.
    calls: usize,
    parts: Vec<Part>,
}

impl AnswerStream {
    /// The format that it reads.
    pub fn format(&self) -> &AnswerFormat {
        &self.format
    }

    /// Takes the next text and returns what it completes.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        // A body is read again from its start: only where something may have ended.
        let is_waiting = matches!(self.mode, Mode::Call(_)) && !text.contains(['}', ']', '>']);
        while !is_waiting && self.step() {}
        std::mem::take(&mut self.parts)
    }

    /// Ends the answer.
    pub fn finish(&mut self) -> Vec<Part> {
        let held = std::mem::take(&mut self.held);
        match self.mode {
            Mode::Call(open) => self.emit(&format!("{}{open}{held}", self.gap)),
            Mode::Close => {}
            Mode::Reasoning => self.emit(held.trim_end()),
            Mode::Start | Mode::Content if self.calls > 0 => self.emit(held.trim_end()),
            Mode::Start | Mode::Content => self.emit(&held),
        }
        std::mem::take(&mut self.parts)
    }

    /// One step; whether there may be another one.
    fn step(&mut self) -> bool {
        match self.mode {
            Mode::Start => self.start(),
            Mode::Content => self.content(),
            Mode::Reasoning => self.reasoning(),
            Mode::Call(open) => self.call(open),
            Mode::Close => self.close(),
        }
    }

    fn start(&mut self) -> bool {
        let text = self.held.trim_start();
        if text.is_empty() {
            return false;
        }
        let is_bare = self.format.calls.is_some_and(|calls| calls.is_bare);
        if is_bare && text.starts_with('{') {
            self.mode = Mode::Call("");
            return true;
        }
        let Some(reasoning) = self.format.reasoning else {
            self.mode = Mode::Content;
            return true;
        };
        let open = reasoning.open.trim_end();
        if let Some(rest) = text.strip_prefix(open) {
            self.held = rest.to_string();
            self.enter(Mode::Reasoning);
            return true;
        }
        let may_be = open.starts_with(text);
        if !may_be {
            self.mode = Mode::Content;
        }
        !may_be
    }

    fn content(&mut self) -> bool {
        let open = self.format.calls.map_or(&[][..], |calls| calls.open);
        let found = open
            .iter()
            .filter_map(|open| Some((self.held.find(open)?, *open)));
        // Of two at one place the longer one counts.
        let found = found.min_by_key(|(at, open)| (*at, usize::MAX - open.len()));
        let Some((at, open)) = found else {
            self.emit_sure(open);
            return false;
        };
        let rest = self.held.split_off(at + open.len());
        let text = std::mem::replace(&mut self.held, rest);
        let before = text[..at].trim_end();
        self.gap = text[before.len()..at].to_string();
        self.emit(before);
        self.mode = Mode::Call(open);
        true
    }

    fn reasoning(&mut self) -> bool {
        let close = self
            .format
            .reasoning
            .map_or("", |reasoning| reasoning.close);
        let Some(at) = self.held.find(close) else {
            self.emit_sure(&[close]);
            return false;
        };
        let rest = self.held.split_off(at + close.len());
        let text = std::mem::replace(&mut self.held, rest);
        self.emit(text[..at].trim_end());
        self.enter(Mode::Content);
        true
    }

    fn call(&mut self, open: &'static str) -> bool {
        let Some(calls) = self.format.calls else {
            return false;
        };
        match (calls.body)(&self.held, &self.format.tools) {
            Read::More => false,
            Read::Calls(found, length) => {
                self.calls += found.len();
                self.parts.extend(found.into_iter().map(Part::Call));
                self.held.drain(..length);
                self.enter(Mode::Close);
                true
            }
            Read::Other => {
                self.mode = Mode::Content;
                let gap = std::mem::take(&mut self.gap);
                self.emit(&format!("{gap}{open}"));
                true
            }
        }
    }

    fn close(&mut self) -> bool {
        let close = self.format.calls.map_or("", |calls| calls.close);
        let text = self.held.trim_start();
        if let Some(rest) = text.strip_prefix(close) {
            self.held = rest.to_string();
        } else if close.starts_with(text) {
            return false;
        }
        self.enter(Mode::Content);
        true
    }

    fn enter(&mut self, mode: Mode) {
        self.mode = mode;
        self.is_fresh = true;
    }

    /// Gives out all that can be no start of a marker, and no white space in front of one.
    fn emit_sure(&mut self, markers: &[&str]) {
        let starts = self.held.char_indices().map(|(at, _)| at);
        let may_begin = |at: &usize| markers.iter().any(|m| m.starts_with(&self.held[*at..]));
        let end = starts.clone().find(may_begin).unwrap_or(self.held.len());
        let end = self.held[..end].trim_end().len();
        let rest = self.held.split_off(end);
        let text = std::mem::replace(&mut self.held, rest);
        self.emit(&text);
    }

    /// Gives out text of the part that the reader is in.
    fn emit(&mut self, text: &str) {
        let text = if self.is_fresh {
            text.trim_start()
        } else {
            text
        };
        if text.is_empty() {
            return;
        }
        self.is_fresh = false;
        self.parts.push(match self.mode {
            Mode::Reasoning => Part::Reasoning(text.to_string()),
            _ => Part::Content(text.to_string()),
        });
    }
}
