//! `cargo xtask man`, and the files of the program for `cargo xtask install`: man pages and completions.

use crate::target::Target;
use crate::tree::Result;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Completions: the name of the shell and the file below a prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/tabla"),
    ("fish", "share/fish/vendor_completions.d/tabla.fish"),
    ("zsh", "share/zsh/site-functions/_tabla"),
];

/// Writes the man pages to a folder.
///
/// # Errors
///
/// If the program cannot be built, or a file cannot be written.
pub fn man(folder: &Path) -> Result<String> {
    // The program is built in another folder.
    let folder = std::path::absolute(folder)?;
    let target = Target::default();
    let name = format!("tabla{}", std::env::consts::EXE_SUFFIX);
    let program = target.build("tabla-cli", "release")?.join(name);
    output(target.run(&program)?.arg("man").arg(&folder))?;
    Ok(format!("man pages in {}\n", folder.display()))
}

/// Installs the program of a folder with its man pages and completions, which the program writes.
///
/// # Errors
///
/// If the program fails or a file cannot be written.
pub fn install_program(built: &Path, prefix: &Path, target: &Target) -> Result<()> {
    let binaries = prefix.join("bin");
    fs::create_dir_all(&binaries)?;
    let name = match target.triple()?.contains("windows") {
        true => "tabla.exe",
        false => "tabla",
    };
    let program = built.join(name);
    fs::copy(&program, binaries.join(name))?;
    let run = |args: &[&OsStr]| output(target.run(&program)?.args(args));
    run(&["man".as_ref(), prefix.join("share/man/man1").as_ref()])?;
    for (shell, path) in COMPLETIONS {
        let script = run(&["completions".as_ref(), shell.as_ref()])?;
        let path = prefix.join(path);
        fs::create_dir_all(path.parent().unwrap_or(prefix))?;
        fs::write(path, script)?;
    }
    Ok(())
}

/// Runs a command and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = command
        .output()
        .map_err(|cause| format!("{name}: {cause}"))?;
    if !ran.status.success() {
        let message = String::from_utf8_lossy(&ran.stderr).into_owned();
        return Err(format!("{name}: {message}").into());
    }
    Ok(ran.stdout)
}
