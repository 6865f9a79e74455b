//! Repository root and result type.

use std::error::Error;
use std::path::{Path, PathBuf};

/// Result of a tool.
pub type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Returns the repository root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
