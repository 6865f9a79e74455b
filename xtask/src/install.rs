//! `cargo xtask install`: header, libraries and what build systems find them by, below a prefix.
//!
//! On Linux the shared library is linked anew out of the static one: so its symbols carry a version
//! (`TABLA_1`), which the linker script that rustc writes of its own leaves no room for, and it has a
//! soname, `libtabla.so.1`. Both are of the ABI, not of the release.

use crate::tree::{Result, root};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What build systems read, where it goes, and `@VERSION@` in it.
const TEMPLATES: [(&str, &str); 3] = [
    ("bindings/c/tabla.pc", "lib/pkgconfig"),
    ("bindings/c/tabla-config.cmake", "lib/cmake/tabla"),
    ("bindings/c/tabla-config-version.cmake", "lib/cmake/tabla"),
];

/// What the shared library needs of the system.
const NATIVE: [&str; 4] = ["-lpthread", "-ldl", "-lm", "-lgcc_s"];

/// Builds the library and installs it.
///
/// # Errors
///
/// Cargo or the linker fails, or a file cannot be written.
pub fn install(prefix: &Path) -> Result<String> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--profile", "dist", "--package", "tabla-capi"])
        .current_dir(root())
        .status()?;
    if !built.success() {
        return Err("the library does not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), Into::into);
    install_from(&target.join("dist/libtabla.a"), prefix)
}

/// Installs what a build has left.
///
/// # Errors
///
/// The linker fails, or a file cannot be written.
pub fn install_from(archive: &Path, prefix: &Path) -> Result<String> {
    if !cfg!(target_os = "linux") {
        return Err("this installs on Linux; elsewhere take target/release as it is".into());
    }
    let root = root();
    let abi = tabla_abi(&fs::read_to_string(root.join("include/tabla.h"))?)?;
    let lib = prefix.join("lib");
    fs::create_dir_all(prefix.join("include"))?;
    fs::create_dir_all(&lib)?;
    // What may fail comes first: without it nothing is installed.
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

/// The number of `TABLA_ABI_VERSION`.
fn tabla_abi(header: &str) -> Result<String> {
    let found = header.lines().find_map(|line| {
        let rest = line.strip_prefix("#define TABLA_ABI_VERSION ")?;
        Some(rest.trim().to_string())
    });
    found.ok_or_else(|| "the header has no TABLA_ABI_VERSION".into())
}

/// Links the shared library out of the static one.
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
        false => Err("the shared library cannot be linked".into()),
    }
}
