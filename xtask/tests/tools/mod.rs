//! How tests call the tools of the machine.

use std::process::{Command, Output};

/// Whether a tool is there.
pub(crate) fn has(tool: &str) -> bool {
    let out = Command::new(tool).arg("--version").output();
    out.is_ok_and(|out| out.status.success())
}

/// What a command says that succeeds.
pub(crate) fn run(command: &mut Command) -> String {
    let (succeeded, out, err) = outcome(command);
    assert!(succeeded, "{command:?}\n{out}{err}");
    out
}

/// Whether a command succeeds, what it says, and what it complains of.
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
