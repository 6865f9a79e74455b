//! The error type of commands.

use std::fmt::Display;
use std::io;
use std::path::Path;

/// The reason that a command failed or ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the library.
    Library(tabla::Error),
    /// An error of this program or of the operating system.
    Program {
        message: String,
        cause: Option<io::Error>,
    },
    /// Invalid arguments.
    Usage(String),
    /// Missing arguments, and lines that explain them.
    UsageWithHelp { message: String, help: Vec<String> },
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The reader of standard output closed the pipe. Not an error.
    Closed,
}

/// Exit code after SIGINT, by the convention of shells.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

impl Failure {
    /// Creates an error of this program.
    pub(crate) fn new(message: impl Display) -> Self {
        Self::Program {
            message: message.to_string(),
            cause: None,
        }
    }

    /// Creates an error of a file operation: `cannot ACTION PATH`.
    pub(crate) fn file(action: &str, path: &Path, cause: io::Error) -> Self {
        Self::Program {
            message: format!("cannot {action} {}", path.display()),
            cause: Some(cause),
        }
    }

    /// Creates an error of standard output; a closed pipe becomes [`Self::Closed`].
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
