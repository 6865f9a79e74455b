//! What `cargo cinstall` leaves, of cargo-c: the files that build systems look for, by which an
//! example is compiled and runs.
//!
//! Where cargo-c is not there it says so, and only holds `[package.metadata.capi]` to the header:
//! cargo-c takes minutes to install.
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
fn the_metadata_are_those_of_the_header() {
    let root = xtask::root().join("crates/capi");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("it is there");
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
    let header = std::fs::read_to_string(root.join(header)).expect("the header is there");
    let abi = header
        .lines()
        .find_map(|line| line.strip_prefix("#define TABLA_ABI_VERSION "))
        .expect("the header has its version");
    let soname = value("library", "version");
    assert_eq!(soname, format!("{abi}.0.0"), "the version of the library");
    let (folder, pattern) = value("install.data", "from")
        .rsplit_once("/*")
        .expect("all files with an ending");
    let files = std::fs::read_dir(root.join(folder)).expect("the folder is there");
    let found = files.filter_map(Result::ok).filter(|file| {
        let name = file.file_name();
        name.to_string_lossy().ends_with(pattern)
    });
    assert_eq!(found.count(), 2, "{folder}/*{pattern}");
}

#[test]
fn cargo_c_installs_what_is_found_and_used() {
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
    std::fs::create_dir_all(&source).expect("the target folder takes folders");
    std::fs::copy(&example, source.join("embed.c")).expect("it can be copied");
    std::fs::write(source.join("CMakeLists.txt"), LISTS).expect("it can be written");
    run(Command::new("cmake")
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
        .arg("-S")
        .arg(&source)
        .arg("-B")
        .arg(&build));
    run(Command::new("cmake").arg("--build").arg(&build));
    check(&build.join("shared"), &prefix);
}

/// It runs, and its first text is as near to itself as can be.
fn check(program: &Path, prefix: &Path) {
    let said = run(Command::new(program)
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .env("VK_ICD_FILENAMES", "/dev/null"));
    assert!(said.starts_with(" 1.000  "), "{program:?}: {said}");
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skip(tool: &str) {
    eprintln!("SKIPPED: no {tool}: what cargo-c installs is not tried");
}
