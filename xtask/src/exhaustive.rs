//! `cargo xtask exhaustive`: runs the full test matrices, which are too slow for every change.

use crate::tree::{Result, root};
use std::process::Command;

/// Runs the tests of the workspace with all kernel variants, storage types and replay modes.
///
/// # Errors
///
/// If a test fails.
pub fn exhaustive() -> Result<String> {
    let tested = Command::new(env!("CARGO"))
        .args(["test", "--release", "--no-fail-fast"])
        .env("TABLA_EXHAUSTIVE", "1")
        .current_dir(root())
        .status()?;
    match tested.success() {
        true => Ok("all tests passed\n".to_string()),
        false => Err("a test failed".into()),
    }
}
