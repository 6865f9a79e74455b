//! A streamed response, split into reasoning and content.

use crate::output::Failure;
use crate::output::answer::{AnswerWriter, Form};
use crate::output::terminal::{self, DIM, PLAIN};
use std::ops::ControlFlow;
use tabla::text::{AssistantMessage, ChatParser, MessageDelta, Tokenizer};
use tabla::{Piece, Stats};

/// Blank line between dim reasoning and content.
const REASONING_END: &str = "\n\n";

/// The parts of a response that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyForm {
    /// All text that the model generates, including the markers of reasoning.
    Raw,
    /// Reasoning, dim, and content.
    Styled,
    /// Content, if a grammar constrains it: programs parse it.
    Content,
}

impl ReplyForm {
    /// Returns the form for standard output.
    pub(super) fn of_terminal() -> Self {
        match terminal::stdout_has_colors() {
            true => Self::Styled,
            false => Self::Raw,
        }
    }
}

/// A response while it is generated.
pub(super) struct Reply<'a> {
    tokenizer: &'a Tokenizer,
    stream: ChatParser,
    writer: AnswerWriter,
    form: ReplyForm,
    style: Style,
    answer: AssistantMessage,
}

/// Style of the text that was written last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Content.
    Content,
    /// Reasoning, dim.
    Reasoning,
}

impl<'a> Reply<'a> {
    /// Creates an empty response.
    pub(super) fn new(form: ReplyForm, tokenizer: &'a Tokenizer, stream: ChatParser) -> Self {
        let writer = AnswerWriter::new(Form::Text);
        Self {
            tokenizer,
            stream,
            // Line breaks would change the strings of JSON that is copied from the terminal.
            writer: match form {
                ReplyForm::Content => writer,
                ReplyForm::Raw | ReplyForm::Styled => writer.wrap_words(),
            },
            form,
            style: Style::Content,
            answer: AssistantMessage::default(),
        }
    }

    /// Writes a generated piece.
    pub(super) fn push(&mut self, piece: Piece<'_>) -> ControlFlow<()> {
        let format = self.stream.format();
        let text = format.token_text(self.tokenizer, piece.token, piece.text);
        let parts = self.stream.push(&text);
        if self.form == ReplyForm::Raw {
            self.collect(parts);
            return self.writer.write_text(&text);
        }
        self.write_parts(parts)
    }

    fn write_parts(&mut self, parts: Vec<MessageDelta>) -> ControlFlow<()> {
        for part in &parts {
            let (text, style) = match part {
                MessageDelta::Content(text) => (text, Style::Content),
                MessageDelta::Reasoning(_) if self.form == ReplyForm::Content => continue,
                MessageDelta::Reasoning(text) => (text, Style::Reasoning),
                // Without tools there are no tool calls.
                MessageDelta::ToolCall(_)
                | MessageDelta::ToolCallStart { .. }
                | MessageDelta::ToolCallArguments(_)
                | MessageDelta::ToolCallEnd => continue,
            };
            if self.write_part(text, style) == ControlFlow::Break(()) {
                self.collect(parts);
                return ControlFlow::Break(());
            }
        }
        self.collect(parts);
        ControlFlow::Continue(())
    }

    fn write_part(&mut self, text: &str, style: Style) -> ControlFlow<()> {
        let (escape, separator) = match (self.style, style) {
            (Style::Content, Style::Reasoning) => (DIM, ""),
            (Style::Reasoning, Style::Content) => (PLAIN, REASONING_END),
            _ => ("", ""),
        };
        self.style = style;
        if !escape.is_empty() {
            self.writer.write_escape(escape)?;
            self.writer.write_text(separator)?;
        }
        self.writer.write_text(text)
    }

    fn collect(&mut self, parts: Vec<MessageDelta>) {
        for part in parts {
            self.answer.push(part);
        }
    }

    /// Ends the last line. Returns the response and its statistics.
    pub(super) fn finish(
        mut self,
        stats: tabla::Result<Stats>,
    ) -> Result<(AssistantMessage, Stats), Failure> {
        let parts = self.stream.finish();
        // `finish` of the writer returns a failure of these writes.
        if self.form == ReplyForm::Raw {
            self.collect(parts);
        } else {
            let _ = self.write_parts(parts);
        }
        if self.style == Style::Reasoning {
            let _ = self.writer.write_escape(PLAIN);
        }
        let stats = self.writer.finish(stats)?;
        if !terminal::stdout_is_terminal() {
            terminal::line("")?;
            terminal::flush()?;
        }
        Ok((self.answer, stats))
    }
}
