//! The list of generated files.

use crate::tree::{Generated, Result, root};
use crate::{dependencies, header as header_file, modules, operations, options};
use std::fmt::Write as _;

/// Returns the C header.
pub fn header() -> Generated {
    Generated::new("include/tabla.h", header_file::header)
}

/// Returns all generated files. The header is generated from others, and comes after them.
pub fn generated() -> impl Iterator<Item = Generated> {
    let operations = Generated::new("docs/OPS.md", operations::operations);
    let modules = Generated::new("docs/modules.md", modules::modules);
    let dependencies = Generated::new("docs/dependencies.md", dependencies::dependencies);
    let files = options::files().into_iter();
    files.chain([header(), operations, modules, dependencies])
}

/// Writes all generated files that are out of date. Returns a report.
///
/// # Errors
///
/// If the source of a file cannot be read or the file cannot be written.
pub fn bless() -> Result<String> {
    let mut report = String::new();
    for Generated { path, text } in generated() {
        let (file, text) = (root().join(&path), text()?);
        let same = std::fs::read_to_string(&file).is_ok_and(|old| old == text);
        if !same {
            std::fs::write(&file, text).map_err(|e| format!("{path}: {e}"))?;
        }
        let verb = if same { "is up to date" } else { "written" };
        writeln!(report, "{path} {verb}")?;
    }
    Ok(report)
}
