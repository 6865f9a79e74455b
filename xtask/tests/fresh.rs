//! Generated files are what their sources make of them.

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
