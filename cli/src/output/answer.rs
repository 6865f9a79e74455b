//! Writes the text of an answer to standard output while it is generated.

use super::failure::Failure;
use super::terminal;
use tabla::{Finish, Flow, Piece, Stats};

/// Where the answer goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sink {
    /// Into one object at the end.
    Json,
    /// To someone who reads along, through a terminal that obeys escape sequences.
    Terminal,
    /// To a file or another program, byte for byte.
    Pipe,
}

/// How an answer is told.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// As it comes.
    Text,
    /// In one object at the end.
    Json,
}

/// The answer while it comes.
pub(crate) struct AnswerWriter {
    sink: Sink,
    /// The text so far, for JSON.
    pub(crate) text: String,
    /// The tokens so far, for JSON: a session whose context was full forgets some.
    pub(crate) tokens: Vec<u32>,
    /// Whether the last line that was written has no end yet.
    open_line: bool,
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
            open_line: false,
            failure: None,
        }
    }

    pub(crate) fn take(&mut self, piece: Piece<'_>) -> Flow {
        if self.sink == Sink::Json && !terminal::interrupted() {
            self.tokens.push(piece.token);
        }
        self.say(piece.text)
    }

    /// Goes on with a text.
    pub(crate) fn say(&mut self, text: &str) -> Flow {
        if terminal::interrupted() {
            return Flow::Stop;
        }
        let written = self.write(text);
        self.goes_on(written)
    }

    /// LogProbsMode the terminal how to show what follows.
    pub(crate) fn style(&mut self, escape: &str) -> Flow {
        self.goes_on(terminal::write(escape))
    }

    fn goes_on(&mut self, written: Result<(), Failure>) -> Flow {
        match written {
            Ok(()) => Flow::Continue,
            Err(failure) => {
                self.failure = Some(failure);
                Flow::Stop
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
            Sink::Terminal => terminal::write(&terminal::printable(text))?,
            Sink::Pipe => terminal::write(text)?,
        }
        self.open_line = !text.ends_with('\n');
        terminal::flush()
    }

    /// Whether what comes next on standard error would stand on the answer's line: both streams
    /// may go to one log.
    pub(crate) fn shares_line(&self) -> bool {
        self.open_line && self.sink == Sink::Pipe && !terminal::stderr_is_terminal()
    }

    /// Ends the line that the answer stands on, without adding to a file that it goes to.
    pub(crate) fn end(&mut self, stats: tabla::Result<Stats>) -> Result<Stats, Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.open_line && self.sink == Sink::Terminal {
            terminal::line("")?;
        }
        terminal::flush()?;
        let mut stats = stats?;
        if terminal::interrupted() {
            stats.finish = Finish::Cancelled;
        }
        Ok(stats)
    }
}
