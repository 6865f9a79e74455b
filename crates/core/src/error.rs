//! The error type of all crates: a kind for the caller to act on, a message and an optional cause.

use std::fmt;

/// Kind of an error. The numbers are part of the C ABI: never change or reuse one.
#[repr(i32)]
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument is out of its range, or a pointer is NULL.
    Argument = 1,
    /// An operating system error, such as a missing file or a read error.
    Io = 2,
    /// The file is damaged or violates its format.
    Format = 3,
    /// The file is valid but uses a feature that this build does not support.
    Unsupported = 4,
    /// A size exceeds a limit of the model, the device or this build.
    TooLarge = 5,
    /// The tokenizer cannot be built, or cannot encode this text.
    Tokenizer = 6,
    /// A grammar or a schema is invalid or not supported.
    Grammar = 7,
    /// A memory allocation failed.
    Memory = 8,
    /// The device reported an error.
    Device = 9,
    /// The device was lost; the model must be loaded again.
    DeviceLost = 10,
    /// The caller cancelled the operation.
    Cancelled = 11,
    /// The call is invalid in the current state of the object: an empty sequence, a full context, a
    /// generation in progress.
    State = 12,
    /// An internal invariant is violated: a bug in the library, or a model that computes numbers that are
    /// not finite.
    Internal = 13,
    /// The library panicked inside the call; the handle is poisoned.
    Panic = 14,
    /// The handle is NULL, stale, of another type, or was freed.
    Handle = 15,
    /// A resource is in use; the call may succeed later.
    Busy = 16,
    /// A callback called the object that invoked it.
    Reentrant = 17,
    /// A panic left the object unusable; create a new one.
    Poisoned = 18,
    /// The process was forked after the model was loaded.
    Forked = 19,
}

/// An error: kind, message and optional cause.
///
/// Messages go from the general to the specific, start in lower case and have no full stop:
/// `stage 5 config: llama.block_count: 5000000 is over the limit of 4096`.
pub struct Error {
    kind: ErrorKind,
    message: Box<str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A result with [`Error`] as its error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error of this kind with this message.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self {
            kind,
            message: message.to_string().into(),
            source: None,
        }
    }

    /// Attaches the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Message, from the general to the specific.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Prefixes the message of an error.
pub trait Context<T> {
    /// Changes the message to `clause: message`.
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
