//! Limits of lists of strings in options: stop strings, DRY sequence breakers, triggers.

use crate::error::{Result, bail};

/// Maximum number of strings in a list.
pub(super) const COUNT_MAX: usize = 64;
/// Maximum length of a string in bytes.
pub(super) const BYTES_MAX: usize = 1024;

/// Validates the number and length of strings.
pub(super) fn check_texts(what: &str, texts: &[String]) -> Result<()> {
    let (count, max) = (texts.len(), COUNT_MAX);
    if count > max {
        bail!(Argument, "expected at most {max} {what}s, got {count}");
    }
    let max = BYTES_MAX;
    for (at, text) in texts.iter().enumerate() {
        let bytes = text.len();
        if !(1..=max).contains(&bytes) {
            bail!(
                Argument,
                "{what} {at} has {bytes} bytes, expected 1 to {max}"
            );
        }
    }
    Ok(())
}
