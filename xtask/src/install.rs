//! `cargo xtask install`: installs header, libraries, build system files and the program below a prefix.
//!
//! On Linux the shared library is relinked from the static one, to give it symbol versions
//! (`TABLA_1`), which conflict with the linker script that rustc generates, and a soname,
//! `libtabla.so.1`. Both have the ABI version, not the release version.

use crate::program::install_program;
use crate::target::Target;
use crate::tree::{Result, root};
use std::fs;
use std::path::Path;

/// Templates of build system files, in which `@VERSION@` is replaced, and their target folders.
const TEMPLATES: [(&str, &str); 3] = [
    ("bindings/c/tabla.pc", "lib/pkgconfig"),
    ("bindings/c/tabla-config.cmake", "lib/cmake/tabla"),
    ("bindings/c/tabla-config-version.cmake", "lib/cmake/tabla"),
];

/// System libraries of the shared library.
const NATIVE: [&str; 4] = ["-lpthread", "-ldl", "-lm", "-lgcc_s"];

/// Libraries that Cargo builds, by the end of the target triple, and their folders below a prefix. With glibc, the
/// shared library is linked again.
const LIBRARIES: [(&str, &[(&str, &str)]); 5] = [
    ("linux-gnu", &[("libtabla.a", "lib")]),
    ("linux-musl", &[("libtabla.a", "lib")]),
    (
        "apple-darwin",
        &[("libtabla.dylib", "lib"), ("libtabla.a", "lib")],
    ),
    (
        "windows-msvc",
        &[
            ("tabla.dll", "bin"),
            ("tabla.dll.lib", "lib"),
            ("tabla.lib", "lib"),
        ],
    ),
    (
        "windows-gnu",
        &[
            ("tabla.dll", "bin"),
            ("libtabla.dll.a", "lib"),
            ("libtabla.a", "lib"),
        ],
    ),
];

/// Builds the library and the program and installs both.
///
/// # Errors
///
/// If Cargo or the linker fails, or a file cannot be written.
pub fn install(prefix: &Path, target: &Target) -> Result<String> {
    let built = target.build("tabla-capi", "dist")?;
    let report = install_from(&built, prefix, target)?;
    install_program(&target.build("tabla-cli", "dist")?, prefix, target)?;
    Ok(report)
}

/// Installs the libraries of a folder.
///
/// # Errors
///
/// If the target is unknown, the linker fails or a file cannot be written.
pub fn install_from(built: &Path, prefix: &Path, target: &Target) -> Result<String> {
    let triple = target.triple()?;
    let mut rows = LIBRARIES.iter();
    let Some((_, libraries)) = rows.find(|(end, _)| triple.ends_with(end)) else {
        let known = LIBRARIES.map(|(end, _)| end).join(", ");
        return Err(format!("unsupported target {triple}; supported are {known}").into());
    };
    let root = root();
    fs::create_dir_all(prefix.join("lib"))?;
    if triple.ends_with("linux-gnu") {
        install_linked(&built.join("libtabla.a"), &prefix.join("lib"), target)?;
    }
    fs::create_dir_all(prefix.join("include"))?;
    fs::copy(root.join("include/tabla.h"), prefix.join("include/tabla.h"))?;
    for (library, folder) in *libraries {
        let folder = prefix.join(folder);
        fs::create_dir_all(&folder)?;
        fs::copy(built.join(library), folder.join(library))?;
    }
    // They name libraries of Unix.
    let templates = TEMPLATES.iter().filter(|_| !triple.contains("windows"));
    for (template, folder) in templates {
        let from = root.join(template);
        let text = fs::read_to_string(&from)?.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        let folder = prefix.join(folder);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(from.file_name().unwrap_or_default()), text)?;
    }
    Ok(format!("installed below {}\n", prefix.display()))
}

/// Links the shared library into a folder, with the link that compilers search.
fn install_linked(archive: &Path, folder: &Path, target: &Target) -> Result<()> {
    let abi = tabla_abi(&fs::read_to_string(root().join("include/tabla.h"))?)?;
    let soname = format!("libtabla.so.{abi}");
    link(archive, &folder.join(&soname), &abi, target)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let readable = fs::Permissions::from_mode(0o644);
        fs::set_permissions(folder.join(&soname), readable)?;
        let short = folder.join("libtabla.so");
        let _ = fs::remove_file(&short);
        std::os::unix::fs::symlink(&soname, &short)?;
    }
    Ok(())
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
fn link(archive: &Path, library: &Path, abi: &str, target: &Target) -> Result<()> {
    let exports = fs::read_to_string(root().join("include/exports.txt"))?;
    let names = || exports.lines();
    let script = library.with_extension("map");
    let globals: String = names().map(|name| format!("    {name};\n")).collect();
    fs::write(
        &script,
        format!("TABLA_{abi} {{\n  global:\n{globals}  local:\n    *;\n}};\n"),
    )?;
    let soname = library.file_name().unwrap_or_default().to_string_lossy();
    let linked = target
        .compiler()?
        .arg("-shared")
        .arg("-o")
        .arg(library)
        .args(names().map(|name| format!("-Wl,-u,{name}")))
        .arg(archive)
        .arg(format!("-Wl,--version-script={}", script.display()))
        .arg(format!("-Wl,-soname,{soname}"))
        .args(["-Wl,--gc-sections", "-Wl,-z,defs", "-Wl,-s"])
        .args(NATIVE)
        .status()?;
    fs::remove_file(&script)?;
    match linked.success() {
        true => Ok(()),
        false => Err("linking the shared library failed".into()),
    }
}
