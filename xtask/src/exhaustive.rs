//! `cargo xtask exhaustive`: the tests with their matrices whole, which take too long for every change.

use crate::tree::{Result, root};
use std::process::Command;

/// Runs the tests of the workspace with every kernel variant, storage type and way of replay.
///
/// # Errors
///
/// A test fails.
pub fn exhaustive() -> Result<String> {
    let tested = Command::new(env!("CARGO"))
        .args(["test", "--release", "--no-fail-fast"])
        .env("TABLA_EXHAUSTIVE", "1")
        .current_dir(root())
        .status()?;
    match tested.success() {
        true => Ok("every matrix of the tests holds\n".to_string()),
        false => Err("a test failed".into()),
    }
}
