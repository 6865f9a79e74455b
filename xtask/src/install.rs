//! `cargo xtask install`: installs header, libraries, build system files and the program below a prefix.
//!
//! On Linux the shared library is relinked from the static one, to give it symbol versions
//! (`TABLA_1`), which conflict with the linker script that rustc generates, and a soname,
//! `libtabla.so.1`. Both have the ABI version, not the release version.

use crate::program::{build_program, install_program};
use crate::reproducible::without_paths;
use crate::tree::{Result, root};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Templates of build system files, in which `@VERSION@` is replaced, and their target folders.
const TEMPLATES: [(&str, &str); 3] = [
    ("bindings/c/tabla.pc", "lib/pkgconfig"),
    ("bindings/c/tabla-config.cmake", "lib/cmake/tabla"),
    ("bindings/c/tabla-config-version.cmake", "lib/cmake/tabla"),
];

/// System libraries of the shared library.
const NATIVE: [&str; 4] = ["-lpthread", "-ldl", "-lm", "-lgcc_s"];

/// Builds the library and the program and installs both.
///
/// # Errors
///
/// If Cargo or the linker fails, or a file cannot be written.
pub fn install(prefix: &Path) -> Result<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--profile", "dist", "--package", "tabla-capi"])
        .current_dir(root());
    without_paths(&mut cargo, &root())?;
    if !cargo.status()?.success() {
        return Err("building tabla-capi failed".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), Into::into);
    let report = install_from(&target.join("dist/libtabla.a"), prefix)?;
    install_program(&build_program("dist")?, prefix)?;
    Ok(report)
}

/// Installs a built static library.
///
/// # Errors
///
/// If the linker fails or a file cannot be written.
pub fn install_from(archive: &Path, prefix: &Path) -> Result<String> {
    if !cfg!(target_os = "linux") {
        return Err("install is only supported on Linux; use the files in target/release".into());
    }
    let root = root();
    let abi = tabla_abi(&fs::read_to_string(root.join("include/tabla.h"))?)?;
    let lib = prefix.join("lib");
    fs::create_dir_all(prefix.join("include"))?;
    fs::create_dir_all(&lib)?;
    // Linking may fail, so it comes first.
    let soname = format!("libtabla.so.{abi}");
    link(archive, &lib.join(&soname), &abi)?;
    fs::copy(root.join("include/tabla.h"), prefix.join("include/tabla.h"))?;
    fs::copy(archive, lib.join("libtabla.a"))?;
    let short = lib.join("libtabla.so");
    let _ = fs::remove_file(&short);
    std::os::unix::fs::symlink(&soname, &short)?;
    for (template, folder) in TEMPLATES {
        let from = root.join(template);
        let text = fs::read_to_string(&from)?.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        let folder = prefix.join(folder);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(from.file_name().unwrap_or_default()), text)?;
    }
    Ok(format!("installed below {}\n", prefix.display()))
}

/// Returns the value of `TABLA_ABI_VERSION`.
fn tabla_abi(header: &str) -> Result<String> {
    let version = header.lines().find_map(|line| {
        let rest = line.strip_prefix("#define TABLA_ABI_VERSION ")?;
        Some(rest.trim_matches(['(', ')']).to_string())
    });
    version.ok_or_else(|| "TABLA_ABI_VERSION not found in include/tabla.h".into())
}

/// Links the shared library from the static one.
fn link(archive: &Path, library: &Path, abi: &str) -> Result<()> {
    let exports = fs::read_to_string(root().join("include/exports.txt"))?;
    let names = || exports.lines();
    let script = library.with_extension("map");
    let globals: String = names().map(|name| format!("    {name};\n")).collect();
    fs::write(
        &script,
        format!("TABLA_{abi} {{\n  global:\n{globals}  local:\n    *;\n}};\n"),
    )?;
    let soname = library.file_name().unwrap_or_default().to_string_lossy();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let linked = Command::new(compiler)
        .arg("-shared")
        .arg("-o")
        .arg(library)
        .args(names().map(|name| format!("-Wl,-u,{name}")))
        .arg(archive)
        .arg(format!("-Wl,--version-script={}", script.display()))
        .arg(format!("-Wl,-soname,{soname}"))
        .args(["-Wl,--gc-sections", "-Wl,-z,defs", "-Wl,-S"])
        .args(NATIVE)
        .status()?;
    fs::remove_file(&script)?;
    match linked.success() {
        true => Ok(()),
        false => Err("linking the shared library failed".into()),
    }
}
