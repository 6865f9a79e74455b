//! The page docs/dependencies.md: its numbers of crates, and that every direct dependency has a row.

use crate::lock::Lock;
use crate::tree::{Result, root};
use std::collections::BTreeSet;

const PAGE: &str = "docs/dependencies.md";

/// Returns the page with current numbers of crates.
///
/// # Errors
///
/// If a direct dependency has no row, or a row names something else.
pub(crate) fn dependencies() -> Result<String> {
    let page = std::fs::read_to_string(root().join(PAGE))?;
    with_counts(&page, &Lock::read()?)
}

fn with_counts(page: &str, lock: &Lock) -> Result<String> {
    let mut missing = lock.direct();
    let mut text = String::new();
    for line in page.lines() {
        let cells: Vec<_> = line.split(" | ").collect();
        let names = match cells[..] {
            [first, _, _, _, _] => names(first),
            _ => Vec::new(),
        };
        if names.is_empty() {
            text += line;
        } else {
            let counts = format!("{} | {} |", lock.tree(&names), lock.only_by(&names));
            text += &cells[..3].join(" | ");
            text = text + " | " + &counts;
        }
        text.push('\n');
        for name in names {
            if !missing.remove(name) {
                return Err(format!("{name} is not a direct dependency or has two rows").into());
            }
        }
    }
    match missing.is_empty() {
        true => Ok(text),
        false => Err(format!("no row for {}", list(&missing)).into()),
    }
}

/// Returns the names in code of the first cell of a row.
fn names(cell: &str) -> Vec<&str> {
    match cell.starts_with("| `") {
        true => cell.split('`').skip(1).step_by(2).collect(),
        false => Vec::new(),
    }
}

fn list(names: &BTreeSet<&str>) -> String {
    let names: Vec<_> = names.iter().copied().collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_complete_and_counted() {
        let lock = Lock::read().expect("Cargo.lock is valid");
        let rows: String = lock.direct().iter().map(|name| row(&[name])).collect();
        let page = with_counts(&format!("# Title\n\n{rows}"), &lock).expect("a complete page");
        assert!(page.starts_with("# Title\n\n| `"), "{page}");
        assert!(
            page.contains("| `strsim` | use | reason | 1 | 0 |\n"),
            "{page}"
        );
        let without = rows.replace(&row(&["strsim"]), "");
        let error = with_counts(&without, &lock).expect_err("a missing row");
        assert_eq!(error.to_string(), "no row for strsim");
        let error = with_counts(&(rows.clone() + &row(&["winnow"])), &lock);
        let error = error.expect_err("an indirect dependency");
        assert!(error.to_string().starts_with("winnow is not"), "{error}");
        assert!(with_counts(&(rows + &row(&["serde"])), &lock).is_err());
    }

    fn row(names: &[&str]) -> String {
        format!("| `{}` | use | reason | 0 | 0 |\n", names.join("`, `"))
    }
}
