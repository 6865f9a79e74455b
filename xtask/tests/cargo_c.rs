//! `cargo cinstall` (cargo-c): build systems find the installed library, and an example compiles
//! and runs.
//!
//! Without cargo-c, which takes minutes to install, only `[package.metadata.capi]` is compared with
//! the header.
#![cfg(target_os = "linux")]

mod tools;

use std::path::Path;
use std::process::Command;
use tools::{has, run};

const LISTS: &str = "cmake_minimum_required(VERSION 3.16)
project(uses_tabla C)
find_package(tabla 0.1 REQUIRED)
add_executable(shared embed.c)
target_link_libraries(shared tabla::tabla m)
";

#[test]
fn metadata_matches_the_header() {
    let root = xtask::root().join("crates/capi");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("the manifest exists");
    let (_, capi) = manifest
        .split_once("\n[package.metadata.capi]\n")
        .expect("the manifest has a section for cargo-c");
    let capi = capi.split("\n[").next().unwrap_or_default();
    let value = |key: &str, field: &str| {
        let line = capi.lines().find(|line| line.starts_with(key));
        let line = line.unwrap_or_else(|| panic!("no {key}"));
        let (_, rest) = line
            .split_once(&format!("{field} = \""))
            .unwrap_or_else(|| panic!("{line}: no {field}"));
        rest.split('"').next().unwrap_or_default()
    };
    let header = value("install.include", "from");
    let header = std::fs::read_to_string(root.join(header)).expect("the header exists");
    let abi = header
        .lines()
        .find_map(|line| line.strip_prefix("#define TABLA_ABI_VERSION "))
        .expect("the header has TABLA_ABI_VERSION")
        .trim_matches(['(', ')']);
    let soname = value("library", "version");
    assert_eq!(soname, format!("{abi}.0.0"), "the version of the library");
    let (folder, pattern) = value("install.data", "from")
        .rsplit_once("/*")
        .expect("a pattern of files");
    let files = std::fs::read_dir(root.join(folder)).expect("the folder exists");
    let found = files.filter_map(Result::ok).filter(|file| {
        let name = file.file_name();
        name.to_string_lossy().ends_with(pattern)
    });
    assert_eq!(found.count(), 2, "{folder}/*{pattern}");
}

#[test]
fn library_installed_by_cargo_c_is_found_and_used() {
    for tool in ["cargo-cinstall", "cc", "readelf", "pkg-config", "cmake"] {
        if !has(tool) {
            return skip(tool);
        }
    }
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cargo-c");
    let _ = std::fs::remove_dir_all(scratch.join("prefix"));
    let prefix = scratch.join("prefix");
    run(Command::new(env!("CARGO"))
        .args([
            "cinstall",
            "-p",
            "tabla-capi",
            "--profile",
            "dev",
            "--libdir",
            "lib",
        ])
        .arg("--target-dir")
        .arg(scratch.join("target"))
        .arg("--prefix")
        .arg(&prefix)
        .current_dir(xtask::root()));

    let dynamic = run(Command::new("readelf")
        .arg("-d")
        .arg(prefix.join("lib/libtabla.so")));
    assert!(dynamic.contains("soname: [libtabla.so.1]"), "{dynamic}");

    let example = xtask::root().join("bindings/c/examples/embed.c");
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "tabla"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    let program = scratch.join("by-pkg-config");
    run(Command::new("cc")
        .arg(&example)
        .args(flags.split_whitespace())
        .args(["-lm", "-o"])
        .arg(&program));
    check(&program, &prefix);

    let (source, build) = (scratch.join("source"), scratch.join("build"));
    let _ = std::fs::remove_dir_all(&build);
    std::fs::create_dir_all(&source).expect("the target folder is writable");
    std::fs::copy(&example, source.join("embed.c")).expect("the file is copied");
    std::fs::write(source.join("CMakeLists.txt"), LISTS).expect("the file is written");
    run(Command::new("cmake")
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
        .arg("-S")
        .arg(&source)
        .arg("-B")
        .arg(&build));
    run(Command::new("cmake").arg("--build").arg(&build));
    check(&build.join("shared"), &prefix);
}

/// Checks that the program runs and that the first text has a similarity of 1 to itself.
fn check(program: &Path, prefix: &Path) {
    let output = run(Command::new(program)
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .env("VK_ICD_FILENAMES", "/dev/null"));
    assert!(output.starts_with(" 1.000  "), "{program:?}: {output}");
}

#[expect(clippy::print_stderr, reason = "reports a skipped test")]
fn skip(tool: &str) {
    eprintln!("SKIPPED: {tool} not found, cargo-c not tested");
}
