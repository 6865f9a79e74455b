//! The limit on the length of a grammar.

use tabla_core::error::{Result, bail};

/// Maximum length of a grammar or regex in bytes. JSON schemas have a higher limit.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Checks the length of a grammar text.
pub(super) fn check_length(what: &str, text: &str) -> Result<()> {
    if text.len() > TEXT_BYTES_MAX {
        bail!(
            TooLarge,
            "{what}: {} bytes exceed the limit of {TEXT_BYTES_MAX}",
            text.len()
        );
    }
    Ok(())
}
