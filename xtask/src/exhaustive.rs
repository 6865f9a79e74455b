//! `cargo xtask exhaustive`: runs the full test matrices, which are too slow for every change.

use crate::tree::{Result, root};
use std::process::Command;

/// Runs the tests of the workspace with all kernel variants, storage types and replay modes, and those of thread
/// synchronization in every interleaving.
///
/// # Errors
///
/// If a test fails.
pub fn exhaustive() -> Result<String> {
    test(&["--release", "--no-fail-fast"])?;
    // The interleavings take longer than compilation.
    test(&[
        "--manifest-path",
        "loom/Cargo.toml",
        "--target-dir",
        "target/loom",
        "--release",
    ])?;
    Ok("all tests passed\n".to_string())
}

/// Runs `cargo test`.
fn test(arguments: &[&str]) -> Result<()> {
    let tested = Command::new(env!("CARGO"))
        .arg("test")
        .args(arguments)
        .env("TABLA_EXHAUSTIVE", "1")
        .current_dir(root())
        .status()?;
    match tested.success() {
        true => Ok(()),
        false => Err("a test failed".into()),
    }
}
