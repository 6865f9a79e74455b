//! License texts of the crates that artifacts contain, for packages.

use crate::packages::packages;
use crate::program::output;
use crate::tree::{Result, root};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Beginnings of the names of files with licenses, in upper case.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// Output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Source>,
}

#[derive(Deserialize)]
struct Source {
    name: String,
    version: String,
    manifest_path: PathBuf,
    /// `None` for crates of the workspace.
    source: Option<String>,
}

/// Returns the license texts of the crates that are linked into the program or the library, each once, after the names
/// of its crates.
///
/// # Errors
///
/// If Cargo fails or a file cannot be read.
pub(crate) fn licenses(triple: &str) -> Result<String> {
    let mut linked = packages("tabla-cli", triple)?;
    linked.extend(packages("tabla-capi", triple)?);
    linked.retain(|_, package| package.is_linked);
    let metadata = output(
        Command::new(env!("CARGO"))
            .args(["metadata", "--locked", "--format-version", "1"])
            .args(["--filter-platform", triple])
            .current_dir(root()),
    )?;
    let metadata: Metadata = serde_json::from_slice(&metadata)?;
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in metadata.packages {
        let Some(package) = linked.get(&(source.name.clone(), source.version.clone())) else {
            continue;
        };
        if source.source.is_none() {
            continue;
        }
        let name = format!("{} {} ({})", source.name, source.version, package.license);
        let folder = source.manifest_path.parent().unwrap_or(Path::new("."));
        let mut texts = texts(folder)?;
        if texts.is_empty() {
            texts.push(format!(
                "The crate has no license file. Its sources: {}\n",
                package.repository
            ));
        }
        for text in texts {
            crates.entry(text).or_default().insert(name.clone());
        }
    }
    let mut report = "Licenses of the crates that Tabla contains.\n".to_string();
    for (text, names) in crates {
        let names: Vec<String> = names.into_iter().collect();
        let rule = "=".repeat(80);
        writeln!(report, "\n{rule}\n{}\n{rule}\n\n{text}", names.join("\n"))?;
    }
    Ok(report)
}

/// Returns the texts of the license files of a folder, in the order of their names.
fn texts(folder: &Path) -> Result<Vec<String>> {
    let entries: Result<Vec<_>, _> = fs::read_dir(folder)?.collect();
    let mut files: Vec<PathBuf> = entries?.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        path.is_file() && NAMES.iter().any(|start| name.starts_with(start))
    });
    let read = |path: PathBuf| Ok(String::from_utf8_lossy(&fs::read(path)?).replace('\r', ""));
    files.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::licenses;

    #[test]
    fn linked_crates_have_their_licenses() {
        let text = licenses("x86_64-unknown-linux-gnu").expect("Cargo runs");
        let position = |words: &str| text.find(words).unwrap_or_else(|| panic!("no {words}"));
        // The text of a license follows the name of its crate.
        assert!(position("\nsymphonia ") < position("Mozilla Public License Version 2.0"));
        assert!(position("\nparking_lot ") < position("Permission is hereby granted"));
        // A crate of tests, a macro and one of the workspace.
        for name in ["\njsonschema ", "\nclap_derive ", "\ntabla-core "] {
            assert!(!text.contains(name), "{name:?}");
        }
    }
}
