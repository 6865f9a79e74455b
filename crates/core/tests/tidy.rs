//! Checks of the source text against the rules in `ARCHITECTURE.md`.
//!
//! Each rule is a function from files to findings, `path:line: message`, and is tested with small
//! examples in `tidy/examples.rs`.

#[path = "tidy/cycles.rs"]
mod cycles;
#[path = "tidy/examples.rs"]
mod examples;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/source.rs"]
mod source;

use layers::{crate_dependencies, module_imports};
use source::{Keep, blank, find};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;
use std::sync::OnceLock;

/// Maximum number of lines of a file, except for lists. `cargo xtask size` lists shorter files that may have more than
/// one idea.
const LINES_MAX: usize = 900;
const LISTS: &[&str] = &["crates/core/src/op/list.rs", "crates/core/src/op/params.rs"];

/// Words that are allowed in certain paths only: the words, the paths, and the message.
const RESTRICTED: &[(&[&str], &[&str], &str)] = &[
    (
        &["unsafe"],
        &[
            "crates/capi/src/",
            "crates/core/src/reserve.rs",
            "crates/cpu/src/simd/",
            "crates/cpu/src/pool.rs",
            "crates/cpu/src/memory.rs",
            "crates/gpu/src/device.rs",
            "crates/gpu/src/variants.rs",
            "crates/gpu/src/pipeline_cache.rs",
            "crates/gpu/src/recorded/",
            "crates/gpu-stats/src/compiler.rs",
            "crates/format/src/faults.rs",
            "crates/format/src/map.rs",
            "crates/format/src/remap.rs",
            "crates/server/src/heap.rs",
            "cli/src/environment.rs",
            "crates/testkit/src/failing.rs",
            "tests/alloc.rs",
        ],
        "unsafe code is not allowed in this file",
    ),
    (
        &["thread::spawn", "scope.spawn", "thread::Builder"],
        &[
            "crates/core/src/reserve.rs",
            "crates/gpu-stats/src/report.rs",
            "cli/tests/",
            "crates/gpu/src/pipeline_cache.rs",
            "crates/server/tests/",
            "crates/text/src/tests.rs",
            "tests/",
            "benches/",
            "xtask/",
        ],
        "threads start with `reserve::thread`, which needs no memory that the system lacks",
    ),
    (
        &["println!", "print!", "eprintln!", "eprint!", "dbg!"],
        &[
            "cli/",
            "crates/gpu-stats/src/main.rs",
            "xtask/",
            "crates/capi/build.rs",
            "crates/capi/tests/",
            "shaders/build.rs",
            "tests/",
            "benches/",
        ],
        "the library must not print",
    ),
    (
        &["process::exit", "process::abort"],
        &["cli/", "xtask/"],
        "the library must not end the process",
    ),
    (
        &["env::var", "env::var_os"],
        &[
            "crates/cpu/src/simd/levels.rs",
            "crates/gpu-stats/",
            "cli/",
            "xtask/",
            "crates/capi/build.rs",
            "crates/capi/tests/",
            "crates/server/tests/",
            "shaders/build.rs",
            "tests/",
            "benches/",
        ],
        "the library must not read environment variables other than TABLA_CPU",
    ),
    (
        &["env::temp_dir"],
        &[
            "crates/format/src/detect.rs",
            "crates/gpu-stats/src/program.rs",
            "tests/it/formats.rs",
        ],
        "two tests may choose the same name in this folder; use tempfile",
    ),
    (
        &["wgpu::", "ash::"],
        &["crates/gpu/src/", "crates/gpu-stats/src/", "tests/"],
        "GPU APIs are allowed in crates/gpu and crates/gpu-stats only",
    ),
    (
        &["fancy_regex::"],
        &["crates/text/src/pattern.rs"],
        "regular expressions are run in crates/text/src/pattern.rs only, which handles their errors",
    ),
    (
        &["llguidance::"],
        &["crates/text/src/grammar/"],
        "grammars are compiled in crates/text/src/grammar only",
    ),
    (
        &["memmap2::"],
        &[
            "crates/format/src/map.rs",
            "crates/cpu/src/memory.rs",
            "cli/",
        ],
        "the library maps memory in crates/format/src/map.rs and crates/cpu/src/memory.rs only",
    ),
    (
        &["libc::"],
        &[
            "crates/capi/src/guard.rs",
            "crates/format/src/faults.rs",
            "crates/format/src/remap.rs",
            "crates/cpu/src/pool.rs",
            "crates/cpu/src/simd/amx/mod.rs",
            "crates/server/src/heap.rs",
        ],
        "libc is called in crates/capi/src/guard.rs, faults.rs and remap.rs of crates/format/src, crates/cpu/src/pool.rs, crates/cpu/src/simd/amx and crates/server/src/heap.rs only",
    ),
];

/// Markers of unfinished work.
const MARKERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];

/// Paths of a developer's machine.
const LOCAL_PATHS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/Us", "ers/"),
];

/// Vague words with a plain replacement, and names that standard terms replaced.
const PROSE: &[(&str, &str)] = &[
    (concat!("beh", "ind"), "after"),
    (concat!("in fro", "nt of"), "before"),
    (concat!("bes", "ide"), "next to"),
    (concat!("so m", "any"), "N"),
    (concat!("who", "ever"), "the caller"),
    (concat!("nob", "ody"), "no one; name the component"),
    (concat!("floor", " plan"), "dependency rules"),
    (concat!("Gues", "ser"), "Drafter"),
];

/// Functions of the C ABI that cannot panic, or that only call a guarded function.
const UNGUARDED: &[&str] = &[
    "tabla_last_error",
    "tabla_last_error_code",
    "tabla_version",
    "tabla_abi_version",
    "tabla_status_name",
    "tabla_load_model",
];

#[test]
fn module_imports_follow_architecture() {
    check(module_imports);
}

#[test]
fn crate_dependencies_follow_architecture() {
    check(crate_dependencies);
}

#[test]
fn operations_have_a_shader_and_a_kernel() {
    check(operations);
}

#[test]
fn restricted_words_are_in_allowed_paths() {
    check(restricted_words);
}

#[test]
fn exported_functions_are_guarded() {
    check(guards);
}

#[test]
fn architecture_names_are_in_src_arch_only() {
    check(architecture_names);
}

#[test]
fn files_begin_with_a_description() {
    check(first_lines);
}

#[test]
fn prose_has_no_vague_words() {
    check(prose);
}

#[test]
fn files_are_short_and_finished() {
    check(length_and_markers);
}

#[test]
fn files_have_no_import_cycles() {
    check(cycles::cycles);
}

/// A text file of the repository.
struct File {
    /// Path relative to the repository root, with `/`.
    path: String,
    text: String,
    /// Text with comments replaced by blanks.
    words: String,
    /// Text with comments and literals replaced by blanks.
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

    /// Returns whether the file is library code and not a test.
    fn is_product(&self) -> bool {
        let library = self.path.starts_with("src/") || self.path.starts_with("crates/");
        library && !self.path.contains("/tests/")
    }

    fn is(&self, kind: &str) -> bool {
        self.path.ends_with(kind)
    }

    /// Returns the part of a module before its tests; nothing for a test file.
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

/// Returns all checked files, read once.
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
        "SECURITY.md",
        "Cargo.toml",
    ]
    .iter()
    .map(|name| root.join(name))
    .filter(|path| path.exists())
    .collect();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let inside = std::fs::read_dir(&path).expect("the directory is readable");
            waiting.extend(inside.map(|entry| entry.expect("the directory is readable").path()));
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let below = path.strip_prefix(root).expect("the path is below the root");
            files.push(File::new(
                &below.to_string_lossy().replace('\\', "/"),
                &text,
            ));
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn check(rule: fn(&[File]) -> Vec<String>) {
    let findings = rule(tree());
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// Finds the words of [`PROSE`].
fn prose(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files {
        let mut at = 0;
        for line in file.text.split_inclusive('\n') {
            for (word, instead) in PROSE.iter().filter(|(word, _)| has_word(line, word)) {
                findings.push(file.finding(at, format!("`{word}`: write `{instead}`")));
            }
            at += line.len();
        }
    }
    findings
}

/// Returns whether a line has a word, in lower case or with a capital first letter.
fn has_word(line: &str, word: &str) -> bool {
    let line = line.to_lowercase();
    let word = word.to_lowercase();
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(&word).any(|(at, _)| {
        !line[..at].ends_with(is_inside) && !line[at + word.len()..].starts_with(is_inside)
    })
}

/// Finds operations without a shader or CPU kernel, and shaders and kernels without an operation.
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
        return vec!["crates/core/src/op/list.rs:1: file not found".to_string()];
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
    let listed: BTreeSet<_> = rows.map(|(_, stem)| stem.to_string()).collect();
    let there = stems(shaders, ".wgsl");
    for stem in listed.difference(&there) {
        findings.push(format!(
            "crates/core/src/op/list.rs:1: {shaders}{stem}.wgsl not found"
        ));
    }
    for stem in there.difference(&listed) {
        findings.push(format!(
            "{shaders}{stem}.wgsl:1: {stem} is not in crates/core/src/op/list.rs"
        ));
    }
    for file in files.iter().filter(|f| f.path.starts_with(kernels)) {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or_default();
        let parent = match name {
            "mod.rs" => continue,
            _ => format!("{folder}/mod.rs"),
        };
        let modules = page(&parent).map_or("", |f| f.code.as_str());
        let stem = name.trim_end_matches(".rs");
        if find(modules, &format!("mod {stem};")).next().is_none() {
            findings.push(file.finding(0, format!("{stem} is not declared in {parent}")));
        }
    }
    if listed.is_empty() {
        findings.push(list.finding(0, "cannot parse any row of the list"));
    }
    findings
}

/// Finds restricted words outside of their allowed paths.
fn restricted_words(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.is(".rs")) {
        for (words, paths, why) in RESTRICTED {
            if paths.iter().any(|path| file.path.starts_with(path)) {
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

/// Finds functions of the C ABI that a panic could unwind out of, or that are not exported.
fn guards(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files
        .iter()
        .filter(|f| f.is(".rs") && f.path.starts_with("crates/capi/src/"))
    {
        for at in find(&file.code, "extern") {
            // Literals are blanks here: `extern "C" fn` is `extern     fn`.
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
                    format!("{name} must be both public and `#[unsafe(no_mangle)]`, or neither");
                findings.push(file.finding(at, what));
            }
            let body = rest.find('{').map_or("", |n| rest[n + 1..].trim_start());
            let guarded = ["guard(", "guard_value("]
                .iter()
                .any(|g| body.starts_with(g));
            if exported && !guarded && !UNGUARDED.contains(&name) {
                findings.push(file.finding(at, format!("{name} must begin with `guard(`")));
            }
        }
    }
    findings
}

/// Text that begins with an architecture name but is a program, a file, a quantization format, a key or the
/// prefix of keys.
const OTHER_NAMES: [&str; 6] = [
    "llama.cpp",
    "bert config.json",
    "bitnet\",\n];",
    "whisper.",
    "llama 4 scaling beta",
    "qwen3-reranker",
];

/// Finds architecture names in code outside of `crates/load/src/arch`. In `crates/text/src` they name
/// tokenizers, and ggml files have one architecture.
fn architecture_names(files: &[File]) -> Vec<String> {
    let recipes = files
        .iter()
        .filter(|f| f.path.starts_with("crates/load/src/arch/"));
    let rows = recipes.flat_map(|f| f.words.split("name: \"").skip(1));
    let named = rows.filter_map(|row| row.split('"').next());
    let known: BTreeSet<_> = named.filter(|name| !name.is_empty()).collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.is(".rs") && f.is_product()) {
        if [
            "crates/load/src/arch/",
            "crates/text/src/",
            "crates/format/src/ggml.rs",
        ]
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
            let what = format!("architecture name {name} is allowed in crates/load/src/arch only");
            findings.extend(found.map(|at| file.finding(at, &what)));
        }
    }
    if known.is_empty() {
        findings.push("crates/load/src/arch: cannot parse the row of any architecture".to_string());
    }
    findings
}

/// Finds files that do not begin with a description, and kernels without a formula.
fn first_lines(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files {
        let first = file.text.lines().next().unwrap_or_default();
        let kernel = file.is(".wgsl") && !file.path.starts_with("shaders/lib/");
        if file.is(".rs") && !first.starts_with("//! ") {
            findings.push(file.finding(0, "file must begin with `//! <description>`"));
        } else if file.is(".wgsl") && !first.starts_with("// ") {
            findings.push(file.finding(0, "shader must begin with `// <description>`"));
        } else if kernel && !first.contains('=') {
            findings.push(file.finding(0, "kernel must begin with its formula"));
        }
    }
    findings
}

/// Finds files that are too long, unfinished, or refer to a developer's machine.
fn length_and_markers(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files {
        let lines = file.text.lines().count();
        let code = [".rs", ".wgsl", ".c"].iter().any(|kind| file.is(kind));
        if code && lines > LINES_MAX && !LISTS.contains(&file.path.as_str()) {
            let what = format!("{lines} lines exceed the limit of {LINES_MAX}; split the file");
            findings.push(format!("{}:{}: {what}", file.path, LINES_MAX + 1));
        }
        for word in MARKERS {
            let found = find(&file.text, word);
            findings
                .extend(found.map(|at| file.finding(at, format!("{word} marks unfinished work"))));
        }
        for folder in LOCAL_PATHS {
            let found = file.text.match_indices(folder);
            let what = format!("{folder} is a path of a developer's machine");
            findings.extend(found.map(|(at, _)| file.finding(at, &what)));
        }
    }
    findings
}
