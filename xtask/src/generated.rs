//! The list of generated files.

use crate::tree::{Generated, Result, root};
use crate::{header, modules, operations, options};
use std::fmt::Write as _;

/// The C header.
pub const HEADER: Generated = Generated {
    path: "include/tabla.h",
    text: header::header,
};

/// Returns all generated files. The header is generated from others, and comes after them.
pub fn generated() -> impl Iterator<Item = Generated> {
    let operations = Generated {
        path: "docs/OPS.md",
        text: operations::operations,
    };
    let modules = Generated {
        path: "docs/modules.md",
        text: modules::modules,
    };
    let files = options::FILES.iter().copied();
    files.chain([HEADER, operations, modules])
}

/// Writes all generated files that are out of date. Returns a report.
///
/// # Errors
///
/// If the source of a file cannot be read or the file cannot be written.
pub fn bless() -> Result<String> {
    let mut report = String::new();
    for Generated { path, text } in generated() {
        let (file, text) = (root().join(path), text()?);
        let same = std::fs::read_to_string(&file).is_ok_and(|old| old == text);
        if !same {
            std::fs::write(&file, text).map_err(|e| format!("{path}: {e}"))?;
        }
        let verb = if same { "is up to date" } else { "written" };
        writeln!(report, "{path} {verb}")?;
    }
    Ok(report)
}
