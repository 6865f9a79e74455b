//! The error type of commands.

use std::fmt::Display;
use std::io;
use std::path::Path;

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
}

impl From<tabla::Error> for Failure {
    fn from(error: tabla::Error) -> Self {
        match error.kind() {
            tabla::ErrorKind::Cancelled => Self::Interrupted,
            _ => Self::Library(error),
        }
    }
}
