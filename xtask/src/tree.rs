//! Repository root, and types that tools share.

use std::error::Error;
use std::path::{Path, PathBuf};

/// Result of a tool.
pub type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Generated file.
#[derive(Clone, Copy, Debug)]
pub struct Generated {
    /// Path relative to the repository root.
    pub path: &'static str,
    /// Generates the text.
    pub text: fn() -> Result<String>,
}

/// Returns the repository root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
