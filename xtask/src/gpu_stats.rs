//! `cargo xtask gpu-stats`: runs the program of `crates/gpu-stats`.

use crate::tree::{Result, root};
use std::path::Path;
use std::process::Command;

/// Runs the program with these arguments. Paths are relative to the current folder.
///
/// # Errors
///
/// If it does not build, or fails.
pub fn gpu_stats(args: &[&str]) -> Result<String> {
    // The features of the whole workspace, so that a release build is used again.
    let mut build = Command::new(env!("CARGO"));
    let build = build.args(["build", "--release", "--quiet", "--bin", "gpu-stats"]);
    if !build.current_dir(root()).status()?.success() {
        return Err("gpu-stats does not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), |folder| Path::new(&folder).into());
    let program = target.join("release/gpu-stats");
    match Command::new(program).args(args).status()?.success() {
        true => Ok(String::new()),
        false => Err("gpu-stats failed".into()),
    }
}
