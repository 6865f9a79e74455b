//! `cargo xtask gpu-lab`: tests of the GPU kernels with a newer driver, and statistics of compilers for other GPUs.

use crate::tree::{Result, root};
use std::process::Command;

/// Runs `tests/gpu_lab.sh` with the arguments: the folder of a chroot, and the parts to run.
///
/// # Errors
///
/// If the script fails.
pub fn gpu_lab(arguments: &[&str]) -> Result<String> {
    // A relative folder is relative to the folder of the caller.
    let folder = arguments.first().map(std::path::absolute).transpose()?;
    let run = Command::new(root().join("tests/gpu_lab.sh"))
        .args(folder)
        .args(arguments.get(1..).unwrap_or_default())
        .status()?;
    match run.success() {
        true => Ok(String::new()),
        false => Err("tests/gpu_lab.sh failed".into()),
    }
}
