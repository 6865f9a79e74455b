//! Target of a build: `TRIPLE`, or `TRIPLE.GLIBC` for an older glibc, which cargo-zigbuild links.

use crate::reproducible::without_paths;
use crate::tree::{Result, root};
use std::fs;
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
        cargo.args(["build", "--profile", profile, "--package", package]);
        cargo.current_dir(root()).envs(self.tools()?);
        let folder = std::env::var_os("CARGO_TARGET_DIR");
        let mut folder = folder.map_or_else(|| root().join("target"), PathBuf::from);
        if let Some(triple) = &self.triple {
            cargo.args(["--target", triple]);
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

    /// Returns the variables with the linker and the C compiler for an older glibc, for Cargo. A variable that is set
    /// keeps its value.
    ///
    /// # Errors
    ///
    /// If a script cannot be written.
    pub(crate) fn tools(&self) -> Result<Vec<(String, PathBuf)>> {
        let (Some(triple), Some(glibc)) = (&self.triple, &self.glibc) else {
            return Ok(Vec::new());
        };
        let folder = root().join("target/zig").join(format!("{triple}.{glibc}"));
        fs::create_dir_all(&folder)?;
        // cargo-zigbuild translates arguments of rustc that zig does not have.
        let target = format!("{}.{glibc}", triple.replace("-unknown-", "-"));
        let cc = format!("cc -- -g -fno-sanitize=all -target {target}");
        let script = |name: &str, arguments: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            let text = format!("#!/bin/sh\nexec cargo-zigbuild zig {arguments} \"$@\"\n");
            fs::write(&path, text)?;
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            }
            Ok(path)
        };
        let (cc, ar) = (script("cc", &cc)?, script("ar", "ar --")?);
        let name = triple.replace('-', "_");
        let linker = format!("CARGO_TARGET_{}_LINKER", name.to_uppercase());
        let tools = [
            (linker, cc.clone()),
            (format!("CC_{name}"), cc),
            (format!("AR_{name}"), ar),
        ];
        let set = |name: &String| std::env::var_os(name).map(PathBuf::from);
        let tools = tools.map(|(name, path)| (set(&name).unwrap_or(path), name));
        Ok(tools.map(|(path, name)| (name, path)).into())
    }

    /// Returns the C compiler that links: that of the variable `CC`, zig for an older glibc, or `cc`.
    ///
    /// # Errors
    ///
    /// If a script cannot be written.
    pub(crate) fn compiler(&self) -> Result<Command> {
        if let Ok(compiler) = std::env::var("CC") {
            return Ok(Command::new(compiler));
        }
        let tools = self.tools()?;
        let zig = tools.into_iter().find(|(name, _)| name.starts_with("CC_"));
        Ok(Command::new(
            zig.map_or_else(|| "cc".into(), |(_, path)| path),
        ))
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
