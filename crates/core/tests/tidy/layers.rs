//! Dependency rules of crates and modules, from the tables of ARCHITECTURE.md.

use super::File;
use super::source::find;

/// Files of the crate `tabla-plan`, which is one module.
const PLAN: &str = "crates/plan/src/";

/// Crates with a module of their own, which has all files but those of the modules in [`SHARED`].
const NAMED: [(&str, &str); 2] = [("crates/load/", "load"), ("crates/tools/", "tools")];

/// Modules in the root of the crates of [`NAMED`], their own ones and those of other crates.
const SHARED: [&str; 17] = [
    "arch", "audio", "cancel", "device", "dtype", "error", "exec", "format", "load", "model", "op",
    "output", "plan", "quant", "speech", "sync", "text",
];

/// Returns the module of a file of the crates that are layers: `load` for
/// `crates/load/src/source.rs`, `op` for `crates/core/src/op/list.rs`.
fn module(path: &str) -> Option<&str> {
    if path.starts_with(PLAN) {
        return Some("plan");
    }
    let crates = [
        "src/",
        "crates/core/src/",
        "crates/load/src/",
        "crates/tools/src/",
    ];
    let below = crates.iter().find_map(|root| path.strip_prefix(root))?;
    let name = below.split('/').next()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    let named = NAMED.iter().find(|(folder, _)| path.starts_with(folder));
    Some(match named {
        Some((_, own)) if !SHARED.contains(&name) => own,
        _ => name,
    })
}

/// Returns the imported paths of a file, beginning with the module that has them.
fn imported(file: &File, own: &str, code: &str) -> Vec<(usize, String)> {
    if file.path.starts_with(PLAN) {
        return paths_from("tabla_core", code);
    }
    let named = NAMED
        .iter()
        .find(|(folder, _)| file.path.starts_with(folder));
    let below = named.map_or("crates/core/", |(folder, _)| folder);
    let below = file.path.trim_start_matches(below);
    let depth = below.matches('/').count() - usize::from(file.is("/mod.rs"));
    // The root of a named crate is a module too.
    let is_named = named.is_some_and(|(_, module)| own == *module);
    let in_module = |module: &'static str| {
        move |(at, path): (usize, String)| {
            let root = path.split("::").next().unwrap_or_default();
            let shared = SHARED.contains(&root) || path.contains(' ');
            (
                at,
                if shared {
                    path
                } else {
                    format!("{module}::{path}")
                },
            )
        }
    };
    let own = imports(code, depth + usize::from(is_named)).into_iter();
    let own: Vec<_> = match named {
        Some((_, module)) => own.map(in_module(module)).collect(),
        None => own.collect(),
    };
    let others = [
        ("tabla_load", "load"),
        ("tabla_tools", "tools"),
        ("tabla_plan", "plan"),
    ];
    let others = others.into_iter().flat_map(|(name, module)| {
        let paths = paths_from(name, code).into_iter();
        paths.map(in_module(module))
    });
    own.into_iter().chain(others).collect()
}

/// Reads the table of ARCHITECTURE.md whose header begins with one of `heads`: names in the first
/// column, and the allowed dependencies of each in the second.
fn table(files: &[File], heads: &[&str]) -> Vec<(String, Vec<String>)> {
    let page = files.iter().find(|f| f.path == "ARCHITECTURE.md");
    let lines = page.map_or("", |f| f.text.as_str()).lines();
    let is_head = |line: &str| heads.iter().any(|head| line.starts_with(head));
    let table = lines.skip_while(|line| !is_head(line)).skip(2);
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
            .map(move |name| (name, allowed.clone()))
    })
    .collect()
}

/// Finds imports of modules that ARCHITECTURE.md does not allow.
pub(super) fn module_imports(files: &[File]) -> Vec<String> {
    let rules = table(files, &["| module", "| room"]);
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.is(".rs") && !f.is("src/lib.rs")) {
        let Some(own) = module(&file.path) else {
            continue;
        };
        let code = file.without_tests(&file.code);
        let allowed = rules.iter().find(|(module, _)| module == own);
        let Some((_, allowed)) = allowed else {
            findings.push(file.finding(0, format!("{own} is not a module of ARCHITECTURE.md")));
            continue;
        };
        for (at, path) in imported(file, own, code) {
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

/// Finds dependencies between crates of the workspace that ARCHITECTURE.md does not allow.
pub(super) fn crate_dependencies(files: &[File]) -> Vec<String> {
    let rows = table(files, &["| crate"]);
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.is("Cargo.toml")) {
        let Some((_, body)) = file.text.split_once("[package]\nname = \"") else {
            continue;
        };
        let own = body.split('"').next().unwrap_or_default();
        let Some((_, allowed)) = rows.iter().find(|(name, _)| name == own) else {
            findings.push(file.finding(0, format!("{own} is not a crate of ARCHITECTURE.md")));
            continue;
        };
        // Development dependencies are not restricted.
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

/// Returns all paths from the crate root with their offsets. `depth` is the depth of the module: 1
/// for `src/a.rs` and `src/a/mod.rs`.
fn imports(code: &str, depth: usize) -> Vec<(usize, String)> {
    let mut found = paths_from("crate", code);
    for at in find(code, "super").filter(|at| !code[..*at].ends_with("::")) {
        if code[at..].starts_with(&"super::".repeat(depth)) {
            found.push((at, "the crate root via super".to_string()));
        }
    }
    found
}

/// Exported macros, which are at the crate root, and the modules that declare them.
const MACROS: [(&str, &str); 4] = [
    ("for_each_op", "op::list"),
    ("with_kind", "op::kind"),
    ("match_kind", "op::kind"),
    ("setters", "options"),
];

/// Returns all paths that begin with a name, without it, with their offsets.
fn paths_from(root: &str, code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in find(code, root) {
        let rest = code[at + root.len()..].strip_prefix("::");
        if let Some(rest) = rest {
            paths(rest, "", &mut |path| {
                let module = MACROS.iter().find(|(name, _)| *name == path);
                found.push((at, module.map_or(path, |(_, module)| module.to_string())));
            });
        }
    }
    found
}

/// Passes all paths of a use tree to `each`. Returns the text after the tree.
fn paths<'a>(tree: &'a str, before: &str, each: &mut dyn FnMut(String)) -> &'a str {
    let tree = tree.trim_start();
    if let Some(mut rest) = tree.strip_prefix('{') {
        loop {
            rest = rest.trim_start().trim_start_matches(',').trim_start();
            if let Some(after) = rest.strip_prefix('}') {
                return after;
            }
            if rest.is_empty() {
                return rest;
            }
            let next = paths(rest, before, each);
            // Skip anything that is neither a name nor a group.
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
