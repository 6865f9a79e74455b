//! What `cargo xtask` writes, and what a test compares with the files in the tree.

mod header;
mod install;
mod operations;
mod size;

pub use install::{install, install_from};
pub use size::size;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Anything that can go wrong in a tool.
pub type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

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

/// The root of the tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

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
