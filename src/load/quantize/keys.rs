//! The tokenizer of a folder as keys of a GGUF file.

use super::Plan;
use crate::error::Result;
use crate::format::write::Writer;
use crate::load::hf;

/// Writes the keys.
pub(super) fn write(
    _folder: &hf::Folder,
    _plans: &[Plan<'_>],
    _writer: &mut Writer<'_>,
) -> Result<()> {
    Ok(())
}
