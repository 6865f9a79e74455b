//! The limit on the length of a grammar.

use tabla_core::error::{Result, bail};

/// Bytes of a grammar or an expression at most; of a schema there may be more.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Holds the text of a grammar against its limit.
pub(super) fn within(what: &str, text: &str) -> Result<()> {
    if text.len() > TEXT_BYTES_MAX {
        bail!(
            TooLarge,
            "{what}: {} bytes are over the limit of {TEXT_BYTES_MAX}",
            text.len()
        );
    }
    Ok(())
}
