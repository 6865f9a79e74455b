//! Layers: which crates and which modules may depend on which, by the tables of ARCHITECTURE.md.

use super::File;
use super::source::find;

/// The module of a file of the crates `tabla` and `tabla-core`: `load` for `src/load/mod.rs`, `op`
/// for `crates/core/src/op/list.rs`.
fn room(path: &str) -> Option<&str> {
    let crates = ["src/", "crates/core/src/"];
    let below = crates.iter().find_map(|root| path.strip_prefix(root))?;
    let name = below.split('/').next()?;
    Some(name.strip_suffix(".rs").unwrap_or(name))
}

/// A table of ARCHITECTURE.md: names in the first column, and what each may use in the second.
fn table(files: &[File], head: &str) -> Vec<(String, Vec<String>)> {
    let page = files.iter().find(|f| f.path == "ARCHITECTURE.md");
    let lines = page.map_or("", |f| f.text.as_str()).lines();
    let table = lines.skip_while(|line| !line.starts_with(head)).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.flat_map(|row| {
        let cells: Vec<_> = row.split('|').map(|cell| cell.replace('`', "")).collect();
        let list = |cell: &str| -> Vec<String> {
            cell.split(',')
                .map(|name| name.trim().to_string())
                .collect()
        };
        let allowed = list(&cells[2]);
        list(&cells[1])
            .into_iter()
            .map(move |room| (room, allowed.clone()))
    })
    .collect()
}

/// Imports that the floor plan does not have.
pub(super) fn floor_plan(files: &[File]) -> Vec<String> {
    let plan = table(files, "| room");
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.is(".rs") && !f.is("src/lib.rs")) {
        let Some(own) = room(&file.path) else {
            continue;
        };
        let code = file.without_tests(&file.code);
        let allowed = plan.iter().find(|(room, _)| room == own);
        let Some((_, allowed)) = allowed else {
            findings.push(file.finding(0, format!("{own} is no room of ARCHITECTURE.md")));
            continue;
        };
        let below = file.path.trim_start_matches("crates/core/");
        let depth = below.matches('/').count() - usize::from(file.is("/mod.rs"));
        for (at, path) in imports(code, depth) {
            let root = path.split("::").next().unwrap_or_default();
            let under = |name: &String| path == *name || path.starts_with(&format!("{name}::"));
            let known = root == own || root == "error" || allowed.iter().any(under);
            if !known {
                findings.push(file.finding(at, format!("{own} may not import {path}")));
            }
        }
    }
    findings
}

/// Dependencies between crates of the workspace that the table of ARCHITECTURE.md does not have.
pub(super) fn crates(files: &[File]) -> Vec<String> {
    let rows = table(files, "| crate");
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.is("Cargo.toml")) {
        let Some((_, body)) = file.text.split_once("[package]\nname = \"") else {
            continue;
        };
        let own = body.split('"').next().unwrap_or_default();
        let Some((_, allowed)) = rows.iter().find(|(name, _)| name == own) else {
            findings.push(file.finding(0, format!("{own} is no crate of ARCHITECTURE.md")));
            continue;
        };
        // Tests may depend on any.
        let sections = file
            .text
            .split("\n[")
            .filter(|s| s.starts_with("dependencies]"));
        for line in sections.flat_map(str::lines) {
            let end = line.find(|c: char| !c.is_alphanumeric() && c != '-');
            let name = &line[..end.unwrap_or(line.len())];
            if name.starts_with("tabla") && !allowed.iter().any(|a| a == name) {
                findings.push(file.finding(0, format!("{own} may not depend on {name}")));
            }
        }
    }
    findings
}

/// Every path from the root of the crate, and where it stands. `depth` is how far below the root
/// the module is: 1 for `src/a.rs` and `src/a/mod.rs`.
fn imports(code: &str, depth: usize) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in find(code, "crate") {
        if let Some(rest) = code[at..].strip_prefix("crate::") {
            paths(rest, "", &mut |path| found.push((at, path)));
        }
    }
    for at in find(code, "super").filter(|at| !code[..*at].ends_with("::")) {
        if code[at..].starts_with(&"super::".repeat(depth)) {
            found.push((at, "the root by way of super".to_string()));
        }
    }
    // The one macro that the crate exports belongs to the list.
    for (_, path) in &mut found {
        if path == "for_each_op" {
            *path = "op::for_each_op".to_string();
        }
    }
    found
}

/// Hands every path of a use tree to `each`. Returns what stands behind the tree.
fn paths<'a>(tree: &'a str, before: &str, each: &mut dyn FnMut(String)) -> &'a str {
    let tree = tree.trim_start();
    if let Some(mut rest) = tree.strip_prefix('{') {
        loop {
            rest = rest.trim_start().trim_start_matches(',').trim_start();
            if let Some(behind) = rest.strip_prefix('}') {
                return behind;
            }
            if rest.is_empty() {
                return rest;
            }
            let next = paths(rest, before, each);
            // What is neither a name nor a group is stepped over.
            let step = rest.chars().next().map_or(0, char::len_utf8);
            rest = if next.len() == rest.len() {
                &rest[step..]
            } else {
                next
            };
        }
    }
    let end = tree
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(tree.len());
    let path = match before {
        "" => tree[..end].to_string(),
        _ => format!("{before}::{}", &tree[..end]),
    };
    match tree[end..].strip_prefix("::") {
        Some(rest) if !rest.starts_with(['<', '*']) => paths(rest, &path, each),
        _ => {
            each(path);
            &tree[end..]
        }
    }
}
