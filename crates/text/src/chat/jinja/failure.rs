//! Errors of templates: kind, message and line.

use tabla_core::error::{Error, ErrorKind};

/// Result of an operation of a template.
pub(super) type Outcome<T> = Result<T, Box<Failure>>;

/// An error of a template.
#[derive(Debug)]
pub(super) struct Failure {
    kind: ErrorKind,
    message: String,
    line: Option<u32>,
}

impl Failure {
    pub(super) fn new(kind: ErrorKind, message: impl std::fmt::Display) -> Box<Self> {
        Box::new(Self {
            kind,
            message: message.to_string(),
            line: None,
        })
    }

    /// Sets the line, unless an inner statement has set it.
    pub(super) fn at(mut self: Box<Self>, line: u32) -> Box<Self> {
        self.line.get_or_insert(line);
        self
    }

    pub(super) fn into_error(self) -> Error {
        let message = self.message;
        match self.line {
            Some(line) => Error::new(
                self.kind,
                format_args!("chat template, line {line}: {message}"),
            ),
            None => Error::new(self.kind, format_args!("chat template: {message}")),
        }
    }
}

/// An operation that the template may not do, such as a sum of a string and a number.
pub(super) fn fail<T>(message: impl std::fmt::Display) -> Outcome<T> {
    Err(Failure::new(ErrorKind::Format, message))
}

/// A value over a limit.
pub(super) fn too_large<T>(message: impl std::fmt::Display) -> Outcome<T> {
    Err(Failure::new(ErrorKind::TooLarge, message))
}
