//! Where the lines of a conversation come from: a line editor where somebody types, else standard
//! input as it is.

use crate::output::Failure;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Behavior, Config, Editor};
use std::io::{self, BufRead, IsTerminal, Read};

/// Bytes of a line at most.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// What stands in front of a line that is typed.
const PROMPT: &str = "> ";

/// The lines. What was typed before can be had again with the arrow keys, until the program ends.
pub(super) enum Lines {
    Typed(Box<Editor<(), MemHistory>>),
    Piped,
}

impl Lines {
    pub(super) fn new() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Piped);
        }
        // Standard output is the model's, and may go to a file.
        let config = Config::builder().behavior(Behavior::PreferTerm).build();
        let history = MemHistory::with_config(&config);
        let editor = Editor::with_history(config, history);
        editor.map(Box::new).map(Self::Typed).map_err(failure)
    }

    /// Whether somebody types them.
    pub(super) fn are_typed(&self) -> bool {
        matches!(self, Self::Typed(_))
    }

    /// The next line, without its end; `None` behind the last one. `offered` stands there already
    /// where somebody types.
    pub(super) fn next(&mut self, offered: &str) -> Result<Option<String>, Failure> {
        let Self::Typed(editor) = self else {
            return piped();
        };
        match editor.readline_with_initial(PROMPT, (offered, "")) {
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

fn piped() -> Result<Option<String>, Failure> {
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
        return Err(Failure::new(format!("a line is over {most} MiB")));
    }
    line.truncate(line.trim_end_matches(['\n', '\r']).len());
    Ok((bytes > 0).then_some(line))
}

fn failure(error: ReadlineError) -> Failure {
    Failure::new(format!("cannot read a line: {error}"))
}
