//! The root of the tree, and the result of a tool.

use std::error::Error;
use std::path::{Path, PathBuf};

/// Anything that can go wrong in a tool.
pub type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// The root of the tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
