//! Repository root, and types that tools share.

use std::error::Error;
use std::path::{Path, PathBuf};

/// Result of a tool.
pub type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Generated file.
#[expect(missing_debug_implementations, reason = "a function has no text")]
pub struct Generated {
    /// Path relative to the repository root.
    pub path: String,
    /// Generates the text.
    pub text: Box<dyn Fn() -> Result<String>>,
}

impl Generated {
    /// Returns the file at a path, with the function that generates its text.
    pub(crate) fn new(
        path: impl Into<String>,
        text: impl Fn() -> Result<String> + 'static,
    ) -> Self {
        Self {
            path: path.into(),
            text: Box::new(text),
        }
    }
}

/// Returns the repository root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
