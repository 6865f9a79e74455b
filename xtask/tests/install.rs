//! `cargo xtask install`: pkg-config and `CMake` find the installed library, and its symbols have
//! the ABI version.
//!
//! Requires a C compiler, readelf, pkg-config and `CMake`; skipped without them, unless
//! `TABLA_REQUIRE_PACKAGING=1`.
#![cfg(target_os = "linux")]

mod archive;
mod tools;

use archive::archive;
use std::path::Path;
use std::process::Command;
use tools::{has, run};

const LISTS: &str = "cmake_minimum_required(VERSION 3.16)
project(uses_tabla C)
find_package(tabla 0.1 REQUIRED)
add_executable(shared embed.c)
target_link_libraries(shared tabla::tabla m)
add_executable(whole embed.c)
target_link_libraries(whole tabla::static m)
";

#[test]
fn installed_library_is_found_and_used() {
    for tool in ["cc", "readelf", "pkg-config", "cmake"] {
        if !has(tool) {
            return skip(tool);
        }
    }
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("install");
    let _ = std::fs::remove_dir_all(&scratch);
    let prefix = scratch.join("prefix");
    let archive = archive();
    let built = archive.parent().expect("a folder");
    xtask::install_from(built, &prefix, &xtask::Target::default()).expect("installation succeeds");
    let library = prefix.join("lib/libtabla.so.1");

    let symbols = run(Command::new("readelf")
        .args(["-W", "--dyn-syms"])
        .arg(&library));
    let list = std::fs::read_to_string(xtask::root().join("include/exports.txt"));
    let list = list.expect("include/exports.txt exists");
    let mut exported: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7)?.strip_suffix("@@TABLA_1"))
        .collect();
    exported.sort_unstable();
    assert_eq!(exported, list.lines().collect::<Vec<_>>());
    let defined = symbols.lines().filter(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 7 && words[4] == "GLOBAL" && words[6] != "UND" && words[6] != "ABS"
    });
    assert_eq!(
        defined.count(),
        exported.len(),
        "no other symbols are exported"
    );

    let example = xtask::root().join("bindings/c/examples/embed.c");
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "tabla"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    let program = scratch.join("by-pkg-config");
    run(Command::new("cc")
        .arg(&example)
        .args(flags.split_whitespace())
        .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()))
        .args(["-lm", "-o"])
        .arg(&program));
    check(&program);

    let (source, build) = (scratch.join("source"), scratch.join("build"));
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
    check(&build.join("shared"));
    check(&build.join("whole"));
}

/// Checks that the program runs and that the first text has a similarity of 1 to itself.
fn check(program: &Path) {
    let output = run(Command::new(program).env("VK_ICD_FILENAMES", "/dev/null"));
    assert!(output.starts_with(" 1.000  "), "{program:?}: {output}");
}

#[expect(clippy::print_stderr, reason = "reports a skipped test")]
fn skip(tool: &str) {
    let required = std::env::var_os("TABLA_REQUIRE_PACKAGING").is_some_and(|v| v == "1");
    assert!(!required, "{tool} is required but not installed");
    eprintln!("SKIPPED: {tool} not exported, installed library not tested");
}
