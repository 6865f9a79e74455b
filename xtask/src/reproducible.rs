//! `cargo xtask reproducible`: builds the C library in two folders and compares the bytes.

use crate::tree::{Result, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Separator of `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: char = '\u{1f}';

/// Files that are compared, below the target folder.
#[cfg(target_os = "linux")]
const FILES: [&str; 2] = ["dist/libtabla.so", "dist/libtabla.a"];
#[cfg(target_os = "macos")]
const FILES: [&str; 2] = ["dist/libtabla.dylib", "dist/libtabla.a"];
#[cfg(windows)]
const FILES: [&str; 2] = ["dist/tabla.dll", "dist/tabla.lib"];

/// Builds the C library in two copies of the working tree, below `target/reproducible`. Returns the digests.
///
/// # Errors
///
/// If Cargo fails, a file cannot be written, or the libraries differ.
pub fn reproducible() -> Result<String> {
    let folder = root().join("target/reproducible");
    let mut builds = Vec::new();
    // Names of different lengths, because a path of another length moves what comes after it.
    for name in ["a", "second"] {
        let copy = folder.join(name);
        copy_tree(&copy)?;
        build(&copy)?;
        builds.push(copy.join("target"));
    }
    let mut report = String::new();
    for file in FILES {
        let digest = |target: &PathBuf| -> Result<_> {
            Ok(blake3::hash(&fs::read(target.join(file))?).to_hex())
        };
        let (first, second) = (digest(&builds[0])?, digest(&builds[1])?);
        if first != second {
            return Err(format!("{file} differs: {first} and {second}").into());
        }
        report = report + &first + "  " + file + "\n";
    }
    Ok(report)
}

/// Copies the files of git to a folder, as they are in the working tree. Build outputs in it are deleted.
fn copy_tree(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output()?;
    if !listed.status.success() {
        return Err(String::from_utf8_lossy(&listed.stderr).into());
    }
    for file in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let (from, to) = (root().join(file), folder.join(file));
        // A deleted file is listed until the deletion is committed.
        if from.exists() {
            fs::create_dir_all(to.parent().unwrap_or(folder))?;
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

fn build(folder: &Path) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "build",
            "--locked",
            "--profile",
            "dist",
            "--package",
            "tabla-capi",
        ])
        .current_dir(folder)
        .env_remove("CARGO_TARGET_DIR");
    without_paths(&mut cargo, folder)?;
    match cargo.status()?.success() {
        true => Ok(()),
        false => Err("building tabla-capi failed".into()),
    }
}

/// Replaces the paths of this machine in what a `cargo build` in `folder` compiles: messages of panics have the
/// paths of source files, those of dependencies as absolute paths.
///
/// # Errors
///
/// If the home folder of Cargo is unknown.
pub(crate) fn without_paths(cargo: &mut Command, folder: &Path) -> Result<()> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir()
            .ok_or("no home folder: set CARGO_HOME")?
            .join(".cargo"),
    };
    let registry = home.join("registry/src");
    let flags = [(registry.as_path(), "/registry"), (folder, "/tabla")];
    let flags = flags.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    // Flags in the environment take the place of those in configuration files.
    let encoded = std::env::var("CARGO_ENCODED_RUSTFLAGS").ok();
    let separator = SEPARATOR.to_string();
    let plain = std::env::var("RUSTFLAGS").ok();
    let plain = plain.map(|flags| {
        flags
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(&separator)
    });
    match encoded.or(plain).filter(|flags| !flags.is_empty()) {
        Some(given) => cargo.env(
            "CARGO_ENCODED_RUSTFLAGS",
            given + &separator + &flags.join(&separator),
        ),
        None => cargo
            .arg("--config")
            .arg(format!("build.rustflags = {flags:?}")),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_paths_do_not_name_the_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/xtask-reproducible");
        let source = folder.join("src");
        fs::create_dir_all(&source).expect("a writable folder");
        let manifest = "[package]\nname = \"probe\"\nedition = \"2024\"\n[workspace]\n";
        fs::write(folder.join("Cargo.toml"), manifest).expect("a writable folder");
        // `file!` of a file that a build script writes is an absolute path; so is this one.
        let included = source.join("included.rs");
        fs::write(&included, "file!()").expect("a writable folder");
        let folder = fs::canonicalize(&folder).expect("a folder");
        let included = folder.join("src/included.rs");
        let main = format!("fn main() {{ print!(\"{{}}\", include!({included:?})); }}\n");
        fs::write(source.join("main.rs"), main).expect("a writable folder");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["run", "--quiet"]).current_dir(&folder);
        without_paths(&mut cargo, &folder).expect("a home folder");
        let output = cargo.output().expect("Cargo runs");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "/tabla/src/included.rs",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
