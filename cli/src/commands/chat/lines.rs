//! The input lines of a chat: from a line editor on a terminal, otherwise from standard input.

use crate::output::Failure;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Behavior, Config, Editor};
use std::io::{self, BufRead, IsTerminal, Read};

/// Maximum size of a line in bytes.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Prompt of the line editor.
const PROMPT: &str = "> ";

/// The source of lines. The line editor keeps a history until the program exits.
pub(super) enum Lines {
    Terminal(Box<Editor<(), MemHistory>>),
    Piped,
}

impl Lines {
    pub(super) fn new() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Piped);
        }
        // Standard output is for responses and may be redirected: the editor uses the terminal.
        let config = Config::builder().behavior(Behavior::PreferTerm).build();
        let history = MemHistory::with_config(&config);
        let editor = Editor::with_history(config, history);
        editor.map(Box::new).map(Self::Terminal).map_err(failure)
    }

    /// Whether lines come from a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Reads a line without its line end; `None` at the end of the input. The line editor starts with
    /// the text `initial`.
    pub(super) fn next(&mut self, initial: &str) -> Result<Option<String>, Failure> {
        let Self::Terminal(editor) = self else {
            return read_piped();
        };
        match editor.readline_with_initial(PROMPT, (initial, "")) {
            Ok(line) => {
                if !line.is_empty() {
                    editor.add_history_entry(&line).map_err(failure)?;
                }
                Ok(Some(line))
            }
            Err(ReadlineError::Eof) => Ok(None),
            Err(ReadlineError::Interrupted) => Err(Failure::Interrupted),
            Err(error) => Err(failure(error)),
        }
    }
}

fn read_piped() -> Result<Option<String>, Failure> {
    let mut line = String::new();
    let mut stdin = io::stdin().lock().take(LINE_BYTES_MAX);
    let bytes = stdin
        .read_line(&mut line)
        .map_err(|cause| Failure::Program {
            message: "cannot read standard input".to_string(),
            cause: Some(cause),
        })?;
    if stdin.limit() == 0 {
        let most = LINE_BYTES_MAX >> 20;
        return Err(Failure::new(format!("line exceeds {most} MiB")));
    }
    line.truncate(line.trim_end_matches(['\n', '\r']).len());
    Ok((bytes > 0).then_some(line))
}

fn failure(error: ReadlineError) -> Failure {
    Failure::new(format!("cannot read a line: {error}"))
}
