//! `cargo xtask size`: counts files and lines.

use crate::tree::{Result, root};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

const KINDS: &[&str] = &[
    "rs", "wgsl", "c", "h", "py", "swift", "js", "mjs", "sh", "md",
];
/// Number of lines from which a file of code is listed: it may have more than one idea.
const LONG: usize = 600;

/// Files and lines of a folder.
#[derive(Default)]
struct Row {
    files: usize,
    lines: usize,
    /// Lines of the files in folders or with names of tests.
    test_lines: usize,
}

/// Returns files and lines of the tracked files by folder, and the files of more than 600 lines.
///
/// # Errors
///
/// If `git` fails or a file cannot be read.
pub fn size() -> Result<String> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output()?;
    if !listed.status.success() {
        let cause = String::from_utf8_lossy(&listed.stderr);
        return Err(format!("git ls-files: {}", cause.trim()).into());
    }
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut long = Vec::new();
    for path in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let file = root().join(path);
        // A deleted file is tracked until it is committed, and a link is counted where it leads.
        if !file.symlink_metadata().is_ok_and(|data| data.is_file()) {
            continue;
        }
        let Some(kind) = KINDS
            .iter()
            .find(|kind| path.ends_with(&format!(".{kind}")))
        else {
            continue;
        };
        let lines = std::fs::read_to_string(&file)?.lines().count();
        let row = rows.entry(folder(path)).or_default();
        row.files += 1;
        match path.contains("test") {
            true => row.test_lines += lines,
            false => row.lines += lines,
        }
        if lines > LONG && *kind != "md" {
            long.push((lines, path.to_string()));
        }
    }
    let mut report = format!("{:<24} files   lines   tests\n", "");
    let mut all = Row::default();
    for (folder, row) in &rows {
        write_row(&mut report, folder, row)?;
        all.files += row.files;
        all.lines += row.lines;
        all.test_lines += row.test_lines;
    }
    write_row(&mut report, "total", &all)?;
    long.sort();
    for (lines, path) in long.iter().rev() {
        writeln!(report, "{path}: {lines} lines")?;
    }
    Ok(report)
}

fn write_row(report: &mut String, name: &str, row: &Row) -> Result<()> {
    let Row {
        files,
        lines,
        test_lines,
    } = row;
    writeln!(report, "{name:<24} {files:>5} {lines:>7} {test_lines:>7}")?;
    Ok(())
}

/// Folder of a row: two levels of `src` and `crates`, one level of others.
fn folder(path: &str) -> String {
    let mut folders: Vec<&str> = path.split('/').collect();
    folders.pop();
    let levels = match folders.first() {
        Some(&"src" | &"crates") => 2,
        _ => 1,
    };
    folders.truncate(levels);
    match folders.is_empty() {
        true => ".".to_string(),
        false => folders.join("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::folder;

    #[test]
    fn rows_are_modules_and_crates() {
        for (path, row) in [
            ("build.rs", "."),
            ("src/lib.rs", "src"),
            ("src/load/hf/a.rs", "src/load"),
            ("crates/cpu/src/a.rs", "crates/cpu"),
            ("docs/a/b.md", "docs"),
        ] {
            assert_eq!(folder(path), row, "{path}");
        }
    }
}
