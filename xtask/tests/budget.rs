//! What makes a build slow and can be counted. Seconds differ by machine, so they grow unnoticed. A change that needs
//! more raises the number here.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use xtask::root;

/// A counted quantity.
struct Budget {
    what: &'static str,
    most: usize,
    /// Returns `None` without what it counts.
    count: fn() -> Option<usize>,
}

const BUDGETS: &[Budget] = &[
    Budget {
        what: "bytes of machine code of tabla-cpu",
        most: 4_600_000,
        count: || Some(code()?.iter().map(|(_, bytes)| bytes).sum()),
    },
    Budget {
        what: "of them of functions for AVX2",
        most: 1_200_000,
        count: || level("avx2"),
    },
    Budget {
        what: "of them of functions for AVX-VNNI",
        most: 540_000,
        count: || level("avx_vnni"),
    },
    Budget {
        what: "of them of functions for AVX-512",
        most: 1_350_000,
        count: || level("avx512"),
    },
    Budget {
        what: "functions for a level of x86-64",
        most: 710,
        count: || {
            let levels = ["avx2", "avx_vnni", "avx512"];
            let of_level = |name: &String| levels.iter().any(|level| is_of(name, level));
            Some(code()?.iter().filter(|(name, _)| of_level(name)).count())
        },
    },
    Budget {
        what: "packages in Cargo.lock",
        most: 330,
        count: || {
            let lock = std::fs::read_to_string(root().join("Cargo.lock")).ok()?;
            Some(lock.matches("[[package]]").count())
        },
    },
    Budget {
        what: "test programs of the workspace",
        most: 28,
        count: || Some(test_programs(&root())),
    },
    Budget {
        what: "lines of Rust without tests",
        most: 169_600,
        count: || {
            let folders = ["src", "crates", "cli/src", "shaders/src"];
            Some(
                folders
                    .iter()
                    .map(|folder| lines(&root().join(folder)))
                    .sum(),
            )
        },
    },
];

#[test]
fn nothing_exceeds_its_budget() {
    let mut over = Vec::new();
    for Budget { what, most, count } in BUDGETS {
        match count() {
            Some(found) if found > *most => over.push(format!("{what}: {found}, at most {most}")),
            Some(found) => print(&format!("{what}: {found} of {most}")),
            None => print(&format!(
                "SKIPPED: {what}: no release build for x86-64, or no `nm`"
            )),
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));
}

/// Prints a line, bypassing the output capture of the test runner.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Returns the names and sizes of the functions of `tabla-cpu` in the latest release build for x86-64.
fn code() -> Option<Vec<(String, usize)>> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let files = std::fs::read_dir(root().join("target/release/deps")).ok()?;
    let files = files.filter_map(|file| {
        let path = file.ok()?.path();
        let name = path.file_name()?.to_str()?;
        let is_library = name.starts_with("libtabla_cpu-") && name.ends_with(".rlib");
        let written = path.metadata().ok()?.modified().ok()?;
        is_library.then_some((written, path))
    });
    let (_, library): (SystemTime, PathBuf) = files.max()?;
    let nm = Command::new("nm").arg("-S").arg(library).output().ok()?;
    let text = String::from_utf8_lossy(&nm.stdout);
    let functions = text.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (size, kind, name) = (fields.next()?, fields.next()?, fields.next()?);
        let size = usize::from_str_radix(size, 16).ok()?;
        kind.eq_ignore_ascii_case("t")
            .then(|| (name.to_string(), size))
    });
    Some(functions.collect())
}

/// Returns whether a mangled name is that of a method of kernels or tasks for a level.
fn is_of(name: &str, level: &str) -> bool {
    name.contains(&format!("{}{level}17h", level.len()))
}

fn level(level: &str) -> Option<usize> {
    let code = code()?;
    let of_level = code.iter().filter(|(name, _)| is_of(name, level));
    // None if names are mangled in another way.
    Some(of_level.map(|(_, bytes)| bytes).sum()).filter(|bytes| *bytes > 0)
}

/// Counts the integration tests: files in folders `tests` of packages, and folders with a `main.rs`.
fn test_programs(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.map(|e| e.path()).filter(|path| path.is_dir());
    let count = |folder: PathBuf| {
        let name = folder.file_name().unwrap_or_default();
        if name != "tests" || !folder.with_file_name("Cargo.toml").is_file() {
            let is_source = name != "target" && name != "fuzz" && name != "loom";
            return if is_source { test_programs(&folder) } else { 0 };
        }
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let programs = entries.map(|e| e.path()).filter(|path| {
            path.extension().is_some_and(|e| e == "rs") || path.join("main.rs").is_file()
        });
        programs.count()
    };
    folders.map(count).sum()
}

/// Counts the lines of Rust files, without those of tests.
fn lines(path: &Path) -> usize {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.contains("tests") {
        return 0;
    }
    if path.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        return entries.map(|entry| lines(&entry.path())).sum();
    }
    if !name.ends_with(".rs") {
        return 0;
    }
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}
