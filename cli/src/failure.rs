//! What ends the program early, how it is said and with which exit code.

use crate::terminal;
use std::error::Error;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library refused.
    Library(tabla::Error),
    /// This program refused, or the operating system did.
    Program {
        message: String,
        cause: Option<io::Error>,
    },
    /// The arguments do not fit together.
    Usage(String),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// Whoever read standard output is gone: nothing is left to do, and nothing is wrong.
    Closed,
}

/// The exit code of a program that SIGINT ended, as shells have it.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

impl Failure {
    /// A refusal of this program.
    pub(crate) fn new(message: impl Display) -> Self {
        Self::Program {
            message: message.to_string(),
            cause: None,
        }
    }

    /// The operating system refused something about a file.
    pub(crate) fn file(doing: &str, path: &Path, cause: io::Error) -> Self {
        Self::Program {
            message: format!("cannot {doing} {}", path.display()),
            cause: Some(cause),
        }
    }

    /// Standard output failed; a reader that left is no failure.
    pub(crate) fn output(cause: io::Error) -> Self {
        if cause.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        Self::Program {
            message: "cannot write to standard output".to_string(),
            cause: Some(cause),
        }
    }

    /// Says it on standard error and yields the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Library(error) => say(error.message(), error.source()),
            Self::Program { message, cause } => {
                say(message, cause.as_ref().map(|c| c as &dyn Error));
            }
            Self::Usage(message) => {
                say(message, None);
                return ExitCode::from(2);
            }
            Self::Interrupted => return ExitCode::from(EXIT_INTERRUPTED),
            Self::Closed => return ExitCode::SUCCESS,
        }
        ExitCode::FAILURE
    }
}

impl From<tabla::Error> for Failure {
    fn from(error: tabla::Error) -> Self {
        match error.kind() {
            tabla::ErrorKind::Cancelled => Self::Interrupted,
            _ => Self::Library(error),
        }
    }
}

/// `error: message`, and a line for each cause that the message does not already quote.
fn say(message: &str, mut cause: Option<&dyn Error>) {
    let mut said = terminal::one_line(message);
    terminal::note(&format!(
        "{}error:{} {said}",
        terminal::RED,
        terminal::PLAIN
    ));
    while let Some(error) = cause {
        let text = error.to_string();
        for (at, line) in text.lines().enumerate() {
            let line = terminal::one_line(line);
            if !said.contains(&line) {
                let lead = if at == 0 { "because" } else { "       " };
                terminal::note(&format!("  {lead} {line}"));
            }
        }
        said = text;
        cause = error.source();
    }
}
