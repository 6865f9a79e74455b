//! Streams generated text to standard output.

use super::failure::Failure;
use super::terminal;
use super::wrap::Wrapper;
use std::ops::ControlFlow;
use tabla::{Finish, Piece, Stats};

/// Destination of the text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sink {
    /// One JSON object at the end.
    Json,
    /// A terminal: control characters are replaced.
    Terminal,
    /// A file or pipe: the text is unchanged.
    Pipe,
}

/// Output format.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// Streamed text.
    Text,
    /// One JSON object at the end.
    Json,
}

/// Writer of generated text.
pub(crate) struct AnswerWriter {
    sink: Sink,
    /// The text so far; JSON only.
    pub(crate) text: String,
    /// The tokens so far; JSON only. A context shift removes tokens from the session.
    pub(crate) tokens: Vec<u32>,
    /// Whether the last line has no line end.
    mid_line: bool,
    /// Breaks lines; terminals only.
    wrapper: Option<Wrapper>,
    failure: Option<Failure>,
}

impl AnswerWriter {
    pub(crate) fn new(form: Form) -> Self {
        let sink = match (form, terminal::stdout_is_terminal()) {
            (Form::Json, _) => Sink::Json,
            (Form::Text, true) => Sink::Terminal,
            (Form::Text, false) => Sink::Pipe,
        };
        Self {
            sink,
            text: String::new(),
            tokens: Vec::new(),
            mid_line: false,
            wrapper: None,
            failure: None,
        }
    }

    /// Breaks lines between words at the width of the terminal. Files and pipes are unchanged.
    pub(crate) fn wrap_words(mut self) -> Self {
        self.wrapper = (self.sink == Sink::Terminal).then(Wrapper::default);
        self
    }

    /// Writes a generated piece.
    pub(crate) fn push(&mut self, piece: Piece<'_>) -> ControlFlow<()> {
        if self.sink == Sink::Json && !terminal::interrupted() {
            self.tokens.push(piece.token);
        }
        self.write_text(piece.text)
    }

    /// Writes text.
    pub(crate) fn write_text(&mut self, text: &str) -> ControlFlow<()> {
        if terminal::interrupted() {
            return ControlFlow::Break(());
        }
        let written = self.write(text);
        self.flow(written)
    }

    /// Writes an escape sequence.
    pub(crate) fn write_escape(&mut self, escape: &str) -> ControlFlow<()> {
        let held = self.wrapper.as_mut().map(Wrapper::flush);
        let held = held.unwrap_or_default();
        self.flow(terminal::write(&held).and_then(|()| terminal::write(escape)))
    }

    /// Stores an error for [`Self::finish`].
    fn flow(&mut self, written: Result<(), Failure>) -> ControlFlow<()> {
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.failure = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        match self.sink {
            Sink::Json => {
                self.text.push_str(text);
                return Ok(());
            }
            Sink::Terminal => self.write_to_terminal(&terminal::printable(text))?,
            Sink::Pipe => terminal::write(text)?,
        }
        self.mid_line = !text.ends_with('\n');
        terminal::flush()
    }

    fn write_to_terminal(&mut self, text: &str) -> Result<(), Failure> {
        let Some(wrapper) = &mut self.wrapper else {
            return terminal::write(text);
        };
        // The user may have changed the size of the window.
        wrapper.set_columns(terminal::stdout_columns());
        terminal::write(&wrapper.push(text))
    }

    /// Whether the last line of a pipe has no line end and standard error may go to the same log.
    pub(crate) fn is_mid_line(&self) -> bool {
        self.mid_line && self.sink == Sink::Pipe && !terminal::stderr_is_terminal()
    }

    /// Ends the last line on a terminal and returns the first error. Files and pipes get no line end.
    pub(crate) fn finish(&mut self, stats: tabla::Result<Stats>) -> Result<Stats, Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if let Some(wrapper) = &mut self.wrapper {
            terminal::write(&wrapper.flush())?;
        }
        if self.mid_line && self.sink == Sink::Terminal {
            terminal::line("")?;
        }
        terminal::flush()?;
        let mut stats = stats?;
        if terminal::interrupted() {
            stats.finish = Some(Finish::Cancelled);
        }
        Ok(stats)
    }
}
