//! The static library for packaging tests.

use std::path::PathBuf;
use std::process::Command;

/// Builds the static library of the C ABI in the profile of this test.
pub(crate) fn archive() -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--package", "tabla-capi"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    crate::tools::run(command.current_dir(xtask::root()));
    let this = std::env::current_exe().expect("the test executable has a path");
    let profile = this.parent().and_then(|deps| deps.parent());
    profile.expect("target/<profile>/deps").join("libtabla.a")
}
