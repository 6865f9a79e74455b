//! Sets `TABLA_COMMIT` to the Git commit that is built, for the manifest of `tabla probe`. Unset outside of
//! a clone.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Changes with every commit and checkout.
    let log = Path::new("../.git/logs/HEAD");
    if !log.exists() {
        return;
    }
    println!("cargo::rerun-if-changed={}", log.display());
    let commit = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let commit = commit.ok().filter(|output| output.status.success());
    if let Some(commit) = commit.and_then(|output| String::from_utf8(output.stdout).ok()) {
        println!("cargo::rustc-env=TABLA_COMMIT={}", commit.trim());
    }
}
