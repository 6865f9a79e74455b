//! `cargo xtask man`, and the files of the program for `cargo xtask install`: man pages and completions.

use crate::reproducible::without_paths;
use crate::tree::{Result, root};
use std::fs;
use std::path::{Path, PathBuf};
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
    output(
        &build_program("release")?,
        &["man".as_ref(), folder.as_os_str()],
    )?;
    Ok(format!("man pages in {}\n", folder.display()))
}

/// Builds the program and returns its path.
pub(crate) fn build_program(profile: &str) -> Result<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--profile", profile, "--package", "tabla-cli"])
        .current_dir(root());
    if profile == "dist" {
        without_paths(&mut cargo, &root())?;
    }
    if !cargo.status()?.success() {
        return Err("building tabla-cli failed".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), Into::into);
    let name = format!("tabla{}", std::env::consts::EXE_SUFFIX);
    Ok(target.join(profile).join(name))
}

/// Installs the program with its man pages and completions.
///
/// # Errors
///
/// If the program fails or a file cannot be written.
pub fn install_program(program: &Path, prefix: &Path) -> Result<()> {
    let binaries = prefix.join("bin");
    fs::create_dir_all(&binaries)?;
    fs::copy(
        program,
        binaries.join(program.file_name().unwrap_or_default()),
    )?;
    let pages = prefix.join("share/man/man1");
    output(program, &["man".as_ref(), pages.as_os_str()])?;
    for (shell, path) in COMPLETIONS {
        let script = output(program, &["completions".as_ref(), shell.as_ref()])?;
        let path = prefix.join(path);
        fs::create_dir_all(path.parent().unwrap_or(prefix))?;
        fs::write(path, script)?;
    }
    Ok(())
}

/// Runs the program and returns its standard output.
fn output(program: &Path, args: &[&std::ffi::OsStr]) -> Result<Vec<u8>> {
    let ran = Command::new(program).args(args).output()?;
    if !ran.status.success() {
        let message = String::from_utf8_lossy(&ran.stderr).into_owned();
        return Err(format!("{}: {message}", program.display()).into());
    }
    Ok(ran.stdout)
}
