//! Generated files and developer tools of `cargo xtask`.

mod affected;
mod exhaustive;
mod header;
mod header_groups;
mod install;
mod operations;
mod size;
mod tree;

pub use affected::affected;
pub use exhaustive::exhaustive;
pub use install::{install, install_from};
pub use size::size;
pub use tree::{Result, root};

use std::fmt::Write as _;

/// Generated file.
#[derive(Clone, Copy, Debug)]
pub struct Generated {
    /// Path relative to the repository root.
    pub path: &'static str,
    /// Generates the text.
    pub text: fn() -> Result<String>,
}

/// All generated files.
pub const GENERATED: &[Generated] = &[
    Generated {
        path: "include/tabla.h",
        text: header::header,
    },
    Generated {
        path: "docs/OPS.md",
        text: operations::operations,
    },
];

/// Writes all generated files that are out of date. Returns a report.
///
/// # Errors
///
/// If the source of a file cannot be read or the file cannot be written.
pub fn bless() -> Result<String> {
    let mut report = String::new();
    for Generated { path, text } in GENERATED {
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
