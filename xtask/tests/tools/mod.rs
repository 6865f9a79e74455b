//! Helpers to run external tools.

use std::process::{Command, Output};

/// Returns whether a tool is installed.
pub(crate) fn has(tool: &str) -> bool {
    let out = Command::new(tool).arg("--version").output();
    out.is_ok_and(|out| out.status.success())
}

/// Returns the output of a command that must succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let (succeeded, out, err) = outcome(command);
    assert!(succeeded, "{command:?}\n{out}{err}");
    out
}

/// Returns success, stdout and stderr of a command.
pub(crate) fn outcome(command: &mut Command) -> (bool, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let [out, err] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (status.success(), out, err)
}
