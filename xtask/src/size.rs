//! `cargo xtask size`: counts files and lines.

use crate::tree::{Result, root};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Folders with hand-written files.
const FOLDERS: &[&str] = &[
    "src", "shaders", "cli", "xtask", "tests", "benches", "models", "docs",
];
const KINDS: &[&str] = &["rs", "wgsl", "c", "h", "md", "py"];

/// Returns files and lines per folder, and per module of `src`.
///
/// # Errors
///
/// If a folder cannot be read.
pub fn size() -> Result<String> {
    let mut rows: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for folder in FOLDERS {
        let path = root().join(folder);
        if path.is_dir() {
            count(&path, folder, &mut rows)?;
        }
    }
    let mut report = String::new();
    let (mut files_all, mut lines_all) = (0, 0);
    for (folder, (files, lines)) in &rows {
        writeln!(report, "{folder:<24} {files:>5} files {lines:>7} lines")?;
        (files_all, lines_all) = (files_all + files, lines_all + lines);
    }
    writeln!(
        report,
        "{:<24} {files_all:>5} files {lines_all:>7} lines",
        "total"
    )?;
    Ok(report)
}

fn count(folder: &Path, name: &str, rows: &mut BTreeMap<String, (usize, usize)>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            let name = if name == "src" {
                format!("src/{stem}")
            } else {
                name.to_string()
            };
            count(&path, &name, rows)?;
        } else if KINDS
            .iter()
            .any(|k| path.extension().is_some_and(|e| e == *k))
        {
            let row = rows.entry(name.to_string()).or_default();
            row.0 += 1;
            row.1 += std::fs::read_to_string(&path)?.lines().count();
        }
    }
    Ok(())
}
