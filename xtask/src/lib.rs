//! What `cargo xtask` writes, and what a test compares with the files in the tree.

mod exhaustive;
mod header;
mod install;
mod operations;
mod size;
mod tree;

pub use exhaustive::exhaustive;
pub use install::{install, install_from};
pub use size::size;
pub use tree::{Result, root};

use std::fmt::Write as _;

/// A file of the tree that is written and not edited.
#[derive(Clone, Copy, Debug)]
pub struct Generated {
    /// Where it lies, below the root.
    pub path: &'static str,
    /// Its text, as it should be.
    pub text: fn() -> Result<String>,
}

/// Every generated file.
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

/// Writes every generated file that is not as it should be, and says which.
///
/// # Errors
///
/// The source of a file cannot be read, or the file cannot be written.
pub fn bless() -> Result<String> {
    let mut said = String::new();
    for Generated { path, text } in GENERATED {
        let (file, text) = (root().join(path), text()?);
        let same = std::fs::read_to_string(&file).is_ok_and(|old| old == text);
        if !same {
            std::fs::write(&file, text).map_err(|e| format!("{path}: {e}"))?;
        }
        let verb = if same { "is fresh" } else { "is written" };
        writeln!(said, "{path} {verb}")?;
    }
    Ok(said)
}
