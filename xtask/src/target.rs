//! Target of a build: `TRIPLE`, or `TRIPLE.GLIBC` for an older glibc, which cargo-zigbuild links.

use crate::reproducible::without_paths;
use crate::tree::{Result, root};
use std::path::PathBuf;
use std::process::Command;

/// Target that artifacts are built for. The default is this machine.
#[derive(Debug, Default)]
pub struct Target {
    /// Target triple, for `--target`.
    triple: Option<String>,
    /// Oldest glibc that the artifacts run with, such as `2.28`.
    pub(crate) glibc: Option<String>,
}

impl Target {
    /// Reads a target triple, which may end with a version of glibc: `x86_64-unknown-linux-gnu.2.28`.
    pub fn new(text: &str) -> Self {
        let (triple, glibc) = match text.split_once('.') {
            Some((triple, glibc)) => (triple, Some(glibc.to_string())),
            None => (text, None),
        };
        Self {
            triple: Some(triple.to_string()),
            glibc,
        }
    }

    /// Returns the target triple.
    ///
    /// # Errors
    ///
    /// If rustc fails.
    pub(crate) fn triple(&self) -> Result<String> {
        if let Some(triple) = &self.triple {
            return Ok(triple.clone());
        }
        let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_string());
        let output = Command::new(compiler).arg("-vV").output()?;
        let output = String::from_utf8(output.stdout)?;
        let host = output.lines().find_map(|line| line.strip_prefix("host: "));
        Ok(host.ok_or("rustc -vV does not print the host")?.to_string())
    }

    /// Builds a package and returns the folder of the outputs. In the profile `dist`, they have no paths of this
    /// machine.
    ///
    /// # Errors
    ///
    /// If Cargo fails.
    pub(crate) fn build(&self, package: &str, profile: &str) -> Result<PathBuf> {
        let mut cargo = Command::new(env!("CARGO"));
        let (build, suffix) = match &self.glibc {
            Some(glibc) => ("zigbuild", format!(".{glibc}")),
            None => ("build", String::new()),
        };
        cargo.args([build, "--profile", profile, "--package", package]);
        cargo.current_dir(root());
        let folder = std::env::var_os("CARGO_TARGET_DIR");
        let mut folder = folder.map_or_else(|| root().join("target"), PathBuf::from);
        if let Some(triple) = &self.triple {
            cargo.arg("--target").arg(format!("{triple}{suffix}"));
            folder.push(triple);
        }
        if profile == "dist" {
            cargo.arg("--locked");
            without_paths(&mut cargo, &root())?;
        }
        match cargo.status()?.success() {
            true => Ok(folder.join(profile)),
            false => Err(format!("building {package} failed").into()),
        }
    }

    /// Returns the C compiler that links: that of the variable `CC`, zig for an older glibc, or `cc`.
    pub(crate) fn compiler(&self) -> Command {
        if let Ok(compiler) = std::env::var("CC") {
            return Command::new(compiler);
        }
        let (Some(triple), Some(glibc)) = (&self.triple, &self.glibc) else {
            return Command::new("cc");
        };
        let mut compiler = Command::new("cargo-zigbuild");
        let target = triple.replace("-unknown-", "-");
        compiler.args(["zig", "cc", "--", "-target", &format!("{target}.{glibc}")]);
        compiler
    }

    /// Returns the command that runs a program of this target: with the runner that Cargo has for it, such as
    /// `CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64`.
    ///
    /// # Errors
    ///
    /// If rustc fails.
    pub(crate) fn run(&self, program: &std::path::Path) -> Result<Command> {
        let triple = self.triple()?.to_uppercase().replace('-', "_");
        let runner = std::env::var(format!("CARGO_TARGET_{triple}_RUNNER")).unwrap_or_default();
        let mut words = runner.split_whitespace();
        let Some(runner) = words.next() else {
            return Ok(Command::new(program));
        };
        let mut command = Command::new(runner);
        command.args(words).arg(program);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn a_target_may_end_with_a_version_of_glibc() {
        let target = Target::new("x86_64-unknown-linux-gnu.2.28");
        assert_eq!(target.triple().expect("given"), "x86_64-unknown-linux-gnu");
        assert_eq!(target.glibc.as_deref(), Some("2.28"));
        let target = Target::new("aarch64-apple-darwin");
        assert_eq!(target.triple().expect("given"), "aarch64-apple-darwin");
        assert_eq!(target.glibc, None);
    }
}
