//! The house rules, read off the text of the tree: `ARCHITECTURE.md` says why each is there.
//!
//! Every rule is a function from files to findings, `path:line: what is wrong`, and has a small
//! bad example below that it must find.

#[path = "tidy/cycles.rs"]
mod cycles;
#[path = "tidy/examples.rs"]
mod examples;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/source.rs"]
mod source;

use layers::{crates, floor_plan};
use source::{Keep, blank, find};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;
use std::sync::OnceLock;

/// Lines of a file at most; a list may be as long as what it lists.
const LINES_MAX: usize = 600;
const LISTS: &[&str] = &["crates/core/src/op/list.rs", "crates/core/src/op/params.rs"];

/// What may stand only in certain places: the words, the places, and whose job it is.
const PLACES: &[(&[&str], &[&str], &str)] = &[
    (
        &["unsafe"],
        &[
            "crates/capi/src/",
            "crates/cpu/src/simd/",
            "crates/cpu/src/pool.rs",
            "crates/cpu/src/memory.rs",
            "crates/gpu/src/device.rs",
            "crates/gpu/src/variants.rs",
            "crates/gpu/src/pipeline_cache.rs",
            "crates/gpu/src/recorded/",
            "crates/format/src/map.rs",
            "tests/alloc.rs",
        ],
        "unsafe code has its few places",
    ),
    (
        &["println!", "print!", "eprintln!", "eprint!", "dbg!"],
        &[
            "cli/",
            "xtask/",
            "crates/capi/build.rs",
            "crates/capi/tests/",
            "shaders/build.rs",
            "tests/",
            "benches/",
        ],
        "the library prints nothing",
    ),
    (
        &["process::exit", "process::abort"],
        &["cli/", "xtask/"],
        "the library ends nobody's process",
    ),
    (
        &["env::var", "env::var_os"],
        &[
            "crates/cpu/src/simd/levels.rs",
            "cli/",
            "xtask/",
            "crates/capi/build.rs",
            "crates/capi/tests/",
            "shaders/build.rs",
            "tests/",
            "benches/",
        ],
        "the environment changes nothing but TABLA_CPU",
    ),
    (
        &["wgpu::", "ash::"],
        &["crates/gpu/src/", "tests/"],
        "graphics stay in src/exec/gpu",
    ),
    (
        &["fancy_regex::"],
        &["crates/text/src/pattern.rs"],
        "expressions are run where their failures are errors",
    ),
    (
        &["minijinja::", "minijinja_contrib::"],
        &["crates/text/src/chat/"],
        "templates run in crates/text/src/chat",
    ),
    (
        &["llguidance::"],
        &["crates/text/src/grammar/"],
        "grammars are followed in crates/text/src/grammar",
    ),
    (
        &["memmap2::"],
        &[
            "crates/format/src/map.rs",
            "crates/cpu/src/memory.rs",
            "cli/",
        ],
        "the library maps memory in two places",
    ),
    (
        &["libc::"],
        &["crates/capi/src/guard.rs", "crates/cpu/src/simd/amx/mod.rs"],
        "the operating system's C library has its two places",
    ),
];

/// Words that promise instead of doing.
const PROMISES: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];

/// Folders of somebody's machine.
const MACHINES: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/Us", "ers/"),
];

/// Functions of the C ABI that cannot fail, or that hand all of their work to one that is guarded.
const GETTERS: &[&str] = &[
    "tabla_last_error",
    "tabla_last_error_code",
    "tabla_version",
    "tabla_abi_version",
    "tabla_status_name",
    "tabla_load_model",
];

#[test]
fn imports_follow_the_floor_plan() {
    hold(floor_plan);
}

#[test]
fn crates_depend_on_those_that_they_may() {
    hold(crates);
}

#[test]
fn list_shaders_and_kernels_are_the_same_operations() {
    hold(operations);
}

#[test]
fn what_has_its_place_stays_there() {
    hold(places);
}

#[test]
fn exported_functions_begin_with_their_guard() {
    hold(guards);
}

#[test]
fn architectures_are_named_in_their_room_only() {
    hold(names);
}

#[test]
fn files_say_what_they_are() {
    hold(first_lines);
}

#[test]
fn files_are_short_and_promise_nothing() {
    hold(manners);
}

#[test]
fn files_have_no_import_cycles() {
    hold(cycles::cycles);
}

/// A text file of the tree.
struct File {
    /// Its path below the root, with `/`.
    path: String,
    text: String,
    /// The text with blanks for comments.
    words: String,
    /// The text with blanks for comments and literals.
    code: String,
}

impl File {
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_string(),
            text: text.to_string(),
            words: blank(text, Keep::Literals),
            code: blank(text, Keep::Code),
        }
    }

    /// Whether it is part of the library, and no test.
    fn is_product(&self) -> bool {
        let library = self.path.starts_with("src/") || self.path.starts_with("crates/");
        library && !self.path.contains("/tests/")
    }

    fn is(&self, kind: &str) -> bool {
        self.path.ends_with(kind)
    }

    /// The part of a module in front of its tests; nothing of a file of tests.
    fn without_tests<'a>(&self, text: &'a str) -> &'a str {
        if self.is("/tests.rs") {
            return "";
        }
        let end = self.code.find("#[cfg(test)]\nmod tests {");
        &text[..end.unwrap_or(text.len())]
    }

    fn finding(&self, at: usize, what: impl Display) -> String {
        let line = self.text[..at].matches('\n').count() + 1;
        format!("{}:{line}: {what}", self.path)
    }
}

/// Every file of the tree that people write, read once for all rules.
fn tree() -> &'static [File] {
    static TREE: OnceLock<Vec<File>> = OnceLock::new();
    TREE.get_or_init(read_tree)
}

fn read_tree() -> Vec<File> {
    let root = &Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    let mut waiting: Vec<_> = [
        "src",
        "crates",
        "shaders",
        "cli",
        "xtask",
        "tests",
        "benches",
        "docs",
        "include",
        ".ci",
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "Cargo.toml",
    ]
    .iter()
    .map(|name| root.join(name))
    .filter(|path| path.exists())
    .collect();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let inside = std::fs::read_dir(&path).expect("the tree can be listed");
            waiting.extend(inside.map(|entry| entry.expect("the tree can be listed").path()));
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let below = path.strip_prefix(root).expect("the walk began at the root");
            files.push(File::new(
                &below.to_string_lossy().replace('\\', "/"),
                &text,
            ));
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn hold(rule: fn(&[File]) -> Vec<String>) {
    let findings = rule(tree());
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// Operations, shaders and CPU kernels that are not one to one to one.
fn operations(files: &[File]) -> Vec<String> {
    let (shaders, kernels) = ("shaders/", "crates/cpu/src/kernel/");
    let stems = |folder: &str, kind: &str| -> BTreeSet<String> {
        let inside = files.iter().filter_map(|f| f.path.strip_prefix(folder));
        let stems = inside.filter_map(|name| name.strip_suffix(kind));
        stems
            .filter(|stem| !stem.contains('/'))
            .map(str::to_string)
            .collect()
    };
    let page = |path: &str| files.iter().find(|f| f.path == path);
    let mut findings = Vec::new();
    let Some(list) = page("crates/core/src/op/list.rs") else {
        return vec!["crates/core/src/op/list.rs:1: the list is not there".to_string()];
    };
    let rows = list
        .without_tests(&list.code)
        .lines()
        .filter(|line| line.trim_end().ends_with(");"));
    let rows = rows.filter_map(|line| {
        let (op, row) = line.trim().split_once(" = ")?;
        Some((op, row.split_once('(')?.0))
    });
    let of_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = |word: &str| !word.is_empty() && word.chars().all(of_name);
    let rows = rows.filter(|(op, stem)| name(op) && name(stem));
    let (ops, listed): (BTreeSet<_>, BTreeSet<_>) =
        rows.map(|(op, stem)| (op, stem.to_string())).unzip();
    let there = stems(shaders, ".wgsl");
    for stem in listed.difference(&there) {
        findings.push(format!(
            "crates/core/src/op/list.rs:1: {stem} has no {shaders}{stem}.wgsl"
        ));
    }
    for stem in there.difference(&listed) {
        findings.push(format!(
            "{shaders}{stem}.wgsl:1: {stem} is not in crates/core/src/op/list.rs"
        ));
    }
    // Operations may share a file of kernels, so `link` names the kernel of each.
    let links = page("crates/cpu/src/kernel/mod.rs").map_or("", |f| f.code.as_str());
    let has = |words: &str| find(links, words).next().is_some();
    for op in ops {
        if !has(&format!("Op::{op} =>")) {
            findings.push(format!("{kernels}mod.rs:1: link has no kernel of Op::{op}"));
        }
    }
    for stem in stems(kernels, ".rs") {
        if stem != "mod" && !has(&format!("mod {stem};")) {
            findings.push(format!(
                "{kernels}{stem}.rs:1: {stem} is not declared in {kernels}mod.rs"
            ));
        }
    }
    if listed.is_empty() {
        findings.push(list.finding(0, "no row of the list can be read"));
    }
    findings
}

/// Words outside the places that they have.
fn places(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.is(".rs")) {
        for (words, places, why) in PLACES {
            if places.iter().any(|place| file.path.starts_with(place)) {
                continue;
            }
            for word in *words {
                let found = find(&file.code, word);
                findings.extend(found.map(|at| file.finding(at, format!("`{word}`: {why}"))));
            }
        }
    }
    findings
}

/// Functions of the C ABI that a panic could leave, or that the linker would not see.
fn guards(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files
        .iter()
        .filter(|f| f.is(".rs") && f.path.starts_with("crates/capi/src/"))
    {
        for at in find(&file.code, "extern") {
            // A literal is blank here, so that `extern "C" fn` is `extern     fn`.
            let Some(rest) = file.code[at + 6..].trim_start().strip_prefix("fn ") else {
                continue;
            };
            let end = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(0);
            let (name, rest) = rest.split_at(end);
            let line = file.code[..at].rfind('\n').map_or(0, |n| n + 1);
            let exported = file.code[..line]
                .trim_end()
                .ends_with("#[unsafe(no_mangle)]");
            let public = file.code[line..at].trim_start().starts_with("pub");
            if public != exported {
                let what =
                    format!("{name} is either public and `#[unsafe(no_mangle)]`, or neither");
                findings.push(file.finding(at, what));
            }
            let body = rest.find('{').map_or("", |n| rest[n + 1..].trim_start());
            let guarded = ["guard(", "guard_value("]
                .iter()
                .any(|g| body.starts_with(g));
            if exported && !guarded && !GETTERS.contains(&name) {
                findings.push(file.finding(at, format!("{name} does not begin with `guard(`")));
            }
        }
    }
    findings
}

/// What begins like the name of an architecture and is a program, a file, or a way to quantize.
const OTHER_NAMES: [&str; 3] = ["llama.cpp", "bert config.json", "bitnet\"];"];

/// Names of architectures in code outside their room. Those in `src/text` name tokenizers.
fn names(files: &[File]) -> Vec<String> {
    let registry = files.iter().find(|f| f.path == "src/arch/mod.rs");
    let registry = registry.map_or("", |f| f.words.as_str());
    let rows = registry.split("name: \"").skip(1);
    let named = rows.filter_map(|row| row.split('"').next());
    let known: BTreeSet<_> = named.filter(|name| !name.is_empty()).collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.is(".rs") && f.is_product()) {
        if ["src/arch/", "crates/text/src/"]
            .iter()
            .any(|place| file.path.starts_with(place))
        {
            continue;
        }
        let words = file
            .without_tests(&file.words)
            .to_lowercase()
            .replace('_', " ");
        for name in &known {
            let other = |at: &usize| {
                let mut names = OTHER_NAMES.iter();
                names.any(|name| words[*at..].starts_with(name))
            };
            let found = find(&words, name).filter(|at| !other(at));
            let what = format!("architectures are named in src/arch only, and {name} is one");
            findings.extend(found.map(|at| file.finding(at, &what)));
        }
    }
    if known.is_empty() {
        findings.push("src/arch/mod.rs:1: no row of the registry can be read".to_string());
    }
    findings
}

/// Files that do not begin with a sentence about themselves, kernels without their formula.
fn first_lines(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files {
        let first = file.text.lines().next().unwrap_or_default();
        let kernel = file.is(".wgsl") && !file.path.starts_with("shaders/lib/");
        if file.is(".rs") && !first.starts_with("//! ") {
            findings.push(file.finding(0, "a file begins with `//! what it is`"));
        } else if file.is(".wgsl") && !first.starts_with("// ") {
            findings.push(file.finding(0, "a shader begins with `// what it does`"));
        } else if kernel && !first.contains('=') {
            findings.push(file.finding(0, "a kernel begins with its formula"));
        }
    }
    findings
}

/// Files that are too long, that promise something, or that know somebody's machine.
fn manners(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files {
        let lines = file.text.lines().count();
        let code = [".rs", ".wgsl", ".c"].iter().any(|kind| file.is(kind));
        if code && lines > LINES_MAX && !LISTS.contains(&file.path.as_str()) {
            let what = format!("{lines} lines are over {LINES_MAX}: it is two files");
            findings.push(format!("{}:{}: {what}", file.path, LINES_MAX + 1));
        }
        for word in PROMISES {
            let found = find(&file.text, word);
            findings.extend(found.map(|at| file.finding(at, format!("{word} promises: do it"))));
        }
        for folder in MACHINES {
            let found = file.text.match_indices(folder);
            let what = format!("{folder} is a folder of somebody's machine");
            findings.extend(found.map(|(at, _)| file.finding(at, &what)));
        }
    }
    findings
}
