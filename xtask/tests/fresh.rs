//! Generated files are what their sources make of them.

use std::collections::BTreeSet;
use xtask::{GENERATED, Generated, root};

#[test]
fn generated_files_are_fresh() {
    for Generated { path, text } in GENERATED {
        let wanted = text().unwrap_or_else(|e| panic!("{path}: {e}"));
        let found = std::fs::read_to_string(root().join(path)).unwrap_or_default();
        let line = wanted
            .lines()
            .zip(found.lines())
            .position(|(wanted, found)| wanted != found)
            .unwrap_or_else(|| wanted.lines().count().min(found.lines().count()));
        assert!(
            wanted == found,
            "{path}:{}: the file is not what its sources say; run `cargo xtask bless`",
            line + 1
        );
    }
}

#[test]
fn the_header_speaks_c() {
    let header = GENERATED[0];
    let text = (header.text)().expect("the header can be written");
    for rust in ["# Safety", "# Errors", "Option<", "&str", "crate::", "[`"] {
        assert!(!text.contains(rust), "{} says {rust:?}", header.path);
    }
}

/// The words of the header that begin with this, each once.
fn words(prefix: &str) -> BTreeSet<String> {
    let header = (GENERATED[0].text)().expect("the header can be written");
    let words = header.split(|c: char| !c.is_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with(prefix) && *word != prefix)
        .map(str::to_string)
        .collect()
}

#[test]
fn the_register_has_every_code() {
    let page = std::fs::read_to_string(root().join("docs/ABI.md")).expect("docs/ABI.md is there");
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(1);
    let names: BTreeSet<_> = rows
        .filter_map(|row| row.split('`').nth(1))
        .filter(|name| *name != "TABLA_OK")
        .map(str::to_string)
        .collect();
    assert_eq!(names, words("TABLA_ERROR_"), "docs/ABI.md, and the header");
}

#[test]
fn the_list_of_exports_has_every_function() {
    let list = root().join("include/exports.txt");
    let list = std::fs::read_to_string(list).expect("include/exports.txt is there");
    let names: BTreeSet<_> = list.lines().map(str::to_string).collect();
    assert_eq!(
        names,
        words("tabla_"),
        "include/exports.txt, and the header"
    );
}
