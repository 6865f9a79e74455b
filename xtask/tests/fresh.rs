//! Generated files are up to date and complete.

use std::collections::BTreeSet;
use xtask::{Generated, generated, header, root};

#[test]
fn generated_files_are_up_to_date() {
    for Generated { path, text } in generated() {
        let expected = text().unwrap_or_else(|e| panic!("{path}: {e}"));
        let actual = std::fs::read_to_string(root().join(&path)).unwrap_or_default();
        let line = expected
            .lines()
            .zip(actual.lines())
            .position(|(expected, actual)| expected != actual)
            .unwrap_or_else(|| expected.lines().count().min(actual.lines().count()));
        assert!(
            expected == actual,
            "{path}:{}: out of date; run `cargo xtask bless`",
            line + 1
        );
    }
}

#[test]
fn header_has_no_rust_syntax() {
    let Generated { path, text } = header();
    let text = text().expect("the header is generated");
    let syntax = [
        "# Safety", "# Errors", "Option<", "None", "Vec<", "Result<", "&str", "&mut", "::", "[`",
    ];
    for rust in syntax {
        assert!(!text.contains(rust), "{path} contains {rust:?}");
    }
}

/// Returns the distinct words of the header with a prefix.
fn words(prefix: &str) -> BTreeSet<String> {
    let header = (header().text)().expect("the header is generated");
    let words = header.split(|c: char| !c.is_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with(prefix) && *word != prefix)
        .map(str::to_string)
        .collect()
}

#[test]
fn error_table_has_all_codes() {
    let page = std::fs::read_to_string(root().join("docs/ABI.md")).expect("docs/ABI.md exists");
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(1);
    let names: BTreeSet<_> = rows
        .filter_map(|row| row.split('`').nth(1))
        .filter(|name| *name != "TABLA_OK")
        .map(str::to_string)
        .collect();
    assert_eq!(
        names,
        words("TABLA_ERROR_"),
        "docs/ABI.md (left) and the header (right)"
    );
}

#[test]
fn export_list_has_all_functions() {
    let list = root().join("include/exports.txt");
    let list = std::fs::read_to_string(list).expect("include/exports.txt exists");
    let names: BTreeSet<_> = list.lines().map(str::to_string).collect();
    assert_eq!(
        names,
        words("tabla_"),
        "include/exports.txt (left) and the header (right)"
    );
}
