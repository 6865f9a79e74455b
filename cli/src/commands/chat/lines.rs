//! The input lines of a chat: from a line editor on a terminal, otherwise from standard input.

use super::commands;
use super::editor::{self, ChatEditor};
use crate::output::{Failure, terminal};
use rustyline::error::ReadlineError;
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::PathBuf;

/// Maximum size of a message in bytes.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// Maximum size in bytes of a line that the history keeps.
const HISTORY_LINE_BYTES_MAX: usize = 64 << 10;

/// Prompt of the line editor.
const PROMPT: &str = "> ";

/// Shown after Ctrl-C on an empty line.
const LEAVE_HINT: &str = "press Ctrl-C again or Ctrl-D to leave";

/// The source of lines.
pub(super) enum Lines {
    Terminal(Box<TerminalLines>),
    Piped,
}

/// The line editor and its history.
pub(super) struct TerminalLines {
    editor: ChatEditor,
    /// `None`: the history ends with the program.
    history: Option<PathBuf>,
    /// Whether the last key was Ctrl-C on an empty line.
    leaving: bool,
}

impl Lines {
    /// `history` is the file of the line editor; `None`: no file.
    pub(super) fn new(history: Option<PathBuf>) -> Result<Self, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Piped);
        }
        let mut lines = TerminalLines {
            editor: editor::new().map_err(failure)?,
            history,
            leaving: false,
        };
        lines.load_history();
        Ok(Self::Terminal(Box::new(lines)))
    }

    /// Whether lines come from a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Reads a line, or a quoted message of several lines, without its line end; `None` at the end of
    /// the input. The line editor starts with the text `initial`.
    pub(super) fn next(&mut self, initial: &str) -> Result<Option<String>, Failure> {
        match self {
            Self::Terminal(lines) => lines.next(initial),
            Self::Piped => read_message(&mut io::stdin().lock()),
        }
    }
}

impl TerminalLines {
    /// Ctrl-C clears a line. On an empty line, the second one interrupts the program.
    fn next(&mut self, initial: &str) -> Result<Option<String>, Failure> {
        let mut initial = initial;
        loop {
            match self.editor.readline_with_initial(PROMPT, (initial, "")) {
                Ok(line) => {
                    self.leaving = false;
                    self.add_history(&line)?;
                    return Ok(Some(line));
                }
                Err(ReadlineError::Eof) => return Ok(None),
                Err(ReadlineError::Interrupted) if self.interrupted_text() => self.leaving = false,
                Err(ReadlineError::Interrupted) if self.leaving => {
                    return Err(Failure::Interrupted);
                }
                Err(ReadlineError::Interrupted) => {
                    self.leaving = true;
                    terminal::eprint_line(LEAVE_HINT);
                }
                Err(error) => return Err(failure(error)),
            }
            initial = "";
        }
    }

    fn interrupted_text(&self) -> bool {
        let helper = self.editor.helper();
        helper.is_some_and(|helper| helper.interrupted_text())
    }

    /// Loads the history. A file that cannot be read is reported and not written.
    fn load_history(&mut self) {
        let Some(path) = &self.history else {
            return;
        };
        if !path.exists() {
            return;
        }
        if let Err(error) = self.editor.load_history(path) {
            let path = path.to_string_lossy();
            terminal::eprint_line(&format!(
                "cannot read the chat history {}: {error}",
                terminal::one_line(&path)
            ));
            self.history = None;
        }
    }

    /// Adds a line to the history and its file, which other processes may write too.
    fn add_history(&mut self, line: &str) -> Result<(), Failure> {
        if line.trim().is_empty() || line.len() > HISTORY_LINE_BYTES_MAX {
            return Ok(());
        }
        self.editor.add_history_entry(line).map_err(failure)?;
        let Some(path) = &self.history else {
            return Ok(());
        };
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = folder
            .map_err(ReadlineError::from)
            .and_then(|()| self.editor.append_history(path));
        if let Err(error) = written {
            let path = path.to_string_lossy();
            terminal::note(&format!(
                "cannot write the chat history {}: {error}",
                terminal::one_line(&path)
            ));
            self.history = None;
        }
        Ok(())
    }
}

/// Reads a line, or a quoted message of several lines.
fn read_message(input: &mut impl BufRead) -> Result<Option<String>, Failure> {
    let mut input = input.take(MESSAGE_BYTES_MAX);
    let mut message = String::new();
    loop {
        let read = input
            .read_line(&mut message)
            .map_err(|cause| Failure::Program {
                message: "cannot read standard input".to_string(),
                cause: Some(cause),
            })?;
        if input.limit() == 0 {
            let most = MESSAGE_BYTES_MAX >> 20;
            return Err(Failure::new(format!("message exceeds {most} MiB")));
        }
        if read == 0 || !commands::is_open(message.trim_end()) {
            let found = read > 0 || !message.is_empty();
            message.truncate(message.trim_end_matches(['\n', '\r']).len());
            return Ok(found.then_some(message));
        }
    }
}

fn failure(error: ReadlineError) -> Failure {
    Failure::new(format!("cannot read a line: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines_and_quoted_messages() {
        let mut input = "a\r\n\n\"\"\"b\n\nc\"\"\"\nd\n\"\"\"e".as_bytes();
        let mut next = || read_message(&mut input).expect("valid UTF-8");
        for expected in ["a", "", "\"\"\"b\n\nc\"\"\"", "d", "\"\"\"e"] {
            assert_eq!(next().as_deref(), Some(expected));
        }
        assert_eq!(next(), None);
    }
}
