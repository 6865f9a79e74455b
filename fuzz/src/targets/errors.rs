//! What results of malformed files must not be.

use super::super::memory::peak;
use tabla::{Error, ErrorKind, Result};

/// Returns the result of a parser of `size` bytes, `None` for an error. Checks the error, that its message has no
/// control characters of the file, and that rejecting the bytes took at most four times their size and 16 MB of memory,
/// so that no number in a file decides how much is allocated.
pub(crate) fn accepted<T>(size: usize, work: impl FnOnce() -> Result<T>) -> Option<T> {
    let (result, peak) = peak(work);
    match result {
        Ok(result) => Some(result),
        Err(error) => {
            check(&error);
            let text = error.to_string();
            assert!(!text.contains(is_unprintable), "{text:?}");
            let most = 4 * size + (16 << 20);
            assert!(
                peak <= most,
                "{peak} bytes of memory for {size} bytes: {error}"
            );
            None
        }
    }
}

/// Returns whether a terminal would obey a character.
fn is_unprintable(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

/// Checks an error: it is not a panic that was caught or a failed check of the library.
pub(crate) fn check(error: &Error) {
    let (kind, text) = (error.kind(), error.to_string());
    let is_fault = matches!(
        kind,
        ErrorKind::Internal | ErrorKind::Panic | ErrorKind::Poisoned
    );
    assert!(!is_fault, "{kind:?}: {text}");
    assert!(!text.is_empty(), "{kind:?}: no message");
}
