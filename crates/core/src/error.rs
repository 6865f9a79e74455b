//! The one error of the crate: what a caller can do about it, and a sentence that says what and where.

use std::fmt;

/// Error codes. The numbers are part of the C ABI and are never changed or reused.
#[repr(i32)]
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument is outside its range, or a required pointer is NULL.
    Argument = 1,
    /// The operating system reported an error: a missing file, a directory, a read error.
    Io = 2,
    /// The file is damaged or has another format than expected.
    Format = 3,
    /// The file is valid but uses a feature that this build does not support.
    Unsupported = 4,
    /// A size exceeds a limit of the model, the device or this build.
    TooLarge = 5,
    /// The tokenizer cannot be built, or cannot encode the text.
    Tokenizer = 6,
    /// A grammar or a JSON schema is invalid.
    Grammar = 7,
    /// A memory allocation failed.
    Memory = 8,
    /// The device reported an error.
    Device = 9,
    /// The device was lost; the model must be loaded again.
    DeviceLost = 10,
    /// The caller cancelled the operation.
    Cancelled = 11,
    /// The call is not valid in the current state: an empty sequence, a full context, an answer in
    /// progress.
    State = 12,
    /// An invariant of the library does not hold. This is a bug of the library.
    Internal = 13,
    /// The library panicked (a fatal internal error) inside the call; the handle is poisoned.
    Panic = 14,
    /// The handle is NULL, was freed, was never created, or has another type.
    Handle = 15,
    /// The resource is in use by another call; the call may succeed later.
    Busy = 16,
    /// A callback called the object that called it.
    Reentrant = 17,
    /// A panic left the object unusable; free it and create a new one.
    Poisoned = 18,
    /// The process was forked from one that had loaded a model.
    Forked = 19,
}

/// An error: kind, message and, where there is one, the cause.
///
/// Messages read from large to small, start in lower case and end without a stop:
/// `stage 5 config: llama.block_count: 5000000 is over the limit of 4096`.
pub struct Error {
    kind: ErrorKind,
    message: Box<str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A result with the crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of this kind with this message.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self {
            kind,
            message: message.to_string().into(),
            source: None,
        }
    }

    /// The same error with the cause attached.
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message, clauses from large to small.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Puts a clause in front of an error's message.
pub trait Context<T> {
    /// `clause: message`.
    fn context(self, clause: impl fmt::Display) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context(self, clause: impl fmt::Display) -> Self {
        self.map_err(|e| Error {
            message: format!("{clause}: {}", e.message).into(),
            ..e
        })
    }
}

/// Returns early with an error: `bail!(Format, "header ends at byte {n}")`.
#[doc(hidden)]
#[macro_export]
macro_rules! bail {
    ($kind:ident, $($message:tt)*) => {
        return Err($crate::error::Error::new($crate::error::ErrorKind::$kind, format_args!($($message)*)))
    };
}
#[doc(hidden)]
pub use bail;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|s| s as _)
    }
}
