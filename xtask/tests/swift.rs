//! `bindings/swift` as far as it can be held without a Swift compiler: clang reads its module maps, its
//! sources call what the header declares, its bundle is one, and its page shows what its tests run.
//!
//! Needs clang, and says so where it skips; with `TABLA_REQUIRE_PACKAGING=1` it fails there.
#![cfg(unix)]

#[cfg(target_os = "linux")]
mod archive;
mod tools;

#[cfg(target_os = "linux")]
use archive::archive;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use tools::{has, outcome, run};

/// Functions that the package does not call, and why no program misses them.
const LEFT_OUT: &[(&[&str], &str)] = &[
    (
        &[
            "tabla_cancel",
            "tabla_chat",
            "tabla_embed",
            "tabla_generate",
            "tabla_logits",
            "tabla_prefill",
            "tabla_reset",
            "tabla_step",
        ],
        "the sequence that a model has of its own is that of a Session",
    ),
    (
        &["tabla_session_chat", "tabla_session_generate"],
        "answers are taken piece by piece, so that a task can be cancelled between two",
    ),
    (
        &[
            "tabla_batch_add",
            "tabla_batch_cancel",
            "tabla_batch_free",
            "tabla_batch_new",
            "tabla_batch_next",
            "tabla_batch_pending",
            "tabla_batch_stats",
        ],
        "many prompts are many sessions, each with a task",
    ),
    (&["tabla_load_model"], "tabla_load_model_with does it, too"),
];

#[test]
fn clang_reads_the_module_map() {
    if !has("clang") {
        return skip("clang");
    }
    let include = xtask::root().join("include");
    read_by_clang(
        "system",
        &package().join("Sources/CTabla/module.modulemap"),
        &include,
    );
}

#[test]
fn sources_call_what_the_header_declares() {
    let header = text(&xtask::root().join("include/tabla.h"));
    let known = words(&header);
    let declared = calls(&without_comments(&header));
    let exported = text(&xtask::root().join("include/exports.txt"));
    let mut called = BTreeSet::new();
    for path in files(&package().join("Sources/Tabla")) {
        let source = text(&path);
        let of_the_library = |word: &&String| {
            ["tabla_", "TABLA_", "Tabla"]
                .iter()
                .any(|p| word.starts_with(p))
        };
        for word in words(&source).iter().filter(of_the_library) {
            let is_known = known.contains(word) || word == "Tabla";
            assert!(is_known, "{path:?}: the header has no {word}");
        }
        for (name, counts) in calls(&source) {
            assert_eq!(counts, declared[&name], "{path:?}: arguments of {name}");
            called.insert(name);
        }
    }
    let left_out: BTreeSet<String> = LEFT_OUT
        .iter()
        .flat_map(|(names, _)| names.iter().map(ToString::to_string))
        .collect();
    let twice: Vec<_> = called.intersection(&left_out).collect();
    assert!(twice.is_empty(), "called and left out: {twice:?}");
    let both: Vec<_> = called.union(&left_out).map(String::as_str).collect();
    assert_eq!(both, exported.lines().collect::<Vec<_>>());
}

#[test]
fn the_page_shows_what_tests_and_examples_have() {
    let page = text(&xtask::root().join("docs/swift.md"));
    let lines = |text: &str| {
        text.lines()
            .map(|l| format!("{}\n", l.trim()))
            .collect::<String>()
    };
    let folders = ["Tests", "Examples"].map(|folder| package().join(folder));
    let sources: Vec<_> = folders
        .iter()
        .flat_map(|f| files(f))
        .map(|path| lines(&text(&path)))
        .collect();
    let blocks: Vec<_> = page.split("```swift\n").skip(1).collect();
    assert!(blocks.len() > 4, "the page has examples");
    for block in blocks {
        let (block, _) = block.split_once("```").expect("a block ends");
        let found = sources.iter().any(|source| source.contains(&lines(block)));
        assert!(found, "no file has this example of docs/swift.md:\n{block}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_bundle_has_what_a_program_links() {
    let out = scratch("bundle").join("CTabla.artifactbundle");
    let triple = "x86_64-unknown-linux-gnu,x86_64-unknown-linux";
    let said = run(bundle(&out).arg(format!("{triple}={}", archive().display())));
    assert_eq!(said, format!("{}\n", out.display()));
    assert_eq!(
        text(&out.join("info.json")),
        INFO.replace("VERSION", env!("CARGO_PKG_VERSION"))
    );
    let header = text(&xtask::root().join("include/tabla.h"));
    assert_eq!(text(&out.join("include/tabla.h")), header);
    if !has("clang") {
        return skip("clang");
    }
    read_by_clang(
        "bundle",
        &out.join("include/module.modulemap"),
        &out.join("include"),
    );
    let program = out.with_file_name("program");
    run(Command::new("clang")
        .args(["-x", "c", "-I"])
        .arg(out.join("include"))
        .arg("-o")
        .arg(&program)
        .arg(source("bundle"))
        .args(["-x", "none"])
        .arg(out.join("x86_64-unknown-linux-gnu/libtabla.a"))
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s"]));
    assert_eq!(run(&mut Command::new(program)), env!("CARGO_PKG_VERSION"));
}

const INFO: &str = r#"{
  "schemaVersion": "1.0",
  "artifacts": {
    "CTabla": {
      "type": "staticLibrary",
      "version": "VERSION",
      "variants": [
        {
          "path": "x86_64-unknown-linux-gnu/libtabla.a",
          "supportedTriples": ["x86_64-unknown-linux-gnu", "x86_64-unknown-linux"],
          "staticLibraryMetadata": {
            "headerPaths": ["include"],
            "moduleMapPath": "include/module.modulemap"
          }
        }
      ]
    }
  }
}
"#;

#[test]
fn a_bundle_that_cannot_be_made_is_not_there() {
    let folder = scratch("no-bundle");
    let out = folder.join("CTabla.artifactbundle");
    for (argument, words) in [
        (
            "x86_64-unknown-linux-gnu=missing.a",
            "library missing.a does not exist",
        ),
        ("missing.a", "expected TRIPLES=LIBRARY"),
        ("a\"b=missing.a", "invalid triples"),
        ("=missing.a", "invalid triples"),
    ] {
        let why = fails(bundle(&out).arg(argument));
        assert!(why.contains(words), "{argument}: {why}");
        let left: Vec<_> = std::fs::read_dir(&folder).expect("it is there").collect();
        assert!(left.is_empty(), "{argument} leaves {left:?}");
    }
    let other = folder.join("other");
    let why = fails(bundle(&other).arg("a=b"));
    assert!(why.contains(".artifactbundle"), "{why}");
    std::fs::create_dir_all(&out).expect("it can be made");
    let why = fails(bundle(&out).arg("a=b"));
    assert!(why.contains("is not a bundle"), "{why}");
}

#[test]
#[cfg(not(target_os = "macos"))]
fn a_framework_wants_a_mac() {
    let why = fails(&mut Command::new(package().join("scripts/xcframework.sh")));
    assert!(why.contains("requires macOS"), "{why}");
}

/// Has clang read a program that imports the module, in both of its languages that have modules.
fn read_by_clang(name: &str, map: &Path, include: &Path) {
    let cache = scratch(&format!("{name}-cache"));
    let import = source(&format!("{name}-import"));
    std::fs::write(
        &import,
        "@import CTabla;\nTablaStatus (*f)(TablaSession *) = tabla_session_end;\n\
         const char *name(void) { return tabla_status_name(TABLA_ERROR_BUSY); }\n",
    )
    .expect("it can be written");
    for (language, file) in [("objective-c", &import), ("c", &source(name))] {
        run(Command::new("clang")
            .args([
                "-fmodules",
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-x",
                language,
            ])
            .arg(format!("-fmodules-cache-path={}", cache.display()))
            .arg(format!("-fmodule-map-file={}", map.display()))
            .arg("-I")
            .arg(include)
            .arg(file));
    }
}

/// A program in C that needs the library.
fn source(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("swift-{name}.c"));
    std::fs::write(
        &path,
        "#include <tabla.h>\n#include <stdio.h>\nint main(void) { fputs(tabla_version(), stdout); return 0; }\n",
    )
    .expect("the target folder takes files");
    path
}

fn bundle(out: &Path) -> Command {
    let mut command = Command::new(package().join("scripts/artifactbundle.sh"));
    command.env("OUT", out);
    command
}

fn package() -> PathBuf {
    xtask::root().join("bindings/swift")
}

/// An empty folder.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("swift-{name}"));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the target folder takes folders");
    path
}

/// The Swift files below a folder, but for what was built there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{folder:?}: {e}")) {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() && !path.ends_with(".build") {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|kind| kind == "swift") {
            found.push(path);
        }
    }
    found
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path:?}: {e}"))
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c| !in_word(c)).map(str::to_string).collect()
}

fn without_comments(header: &str) -> String {
    let mut parts = header.split("/*");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |all, part| {
        all + part.split_once("*/").expect("a comment ends").1
    })
}

/// Functions of the library with how many arguments they are called with, or declared with.
fn calls(text: &str) -> BTreeMap<String, BTreeSet<usize>> {
    let mut found = BTreeMap::<String, BTreeSet<usize>>::new();
    for (at, _) in text.match_indices("tabla_") {
        let rest = &text[at..];
        let end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
        if rest[end..].starts_with('(') && !text[..at].ends_with(in_word) {
            let count = arguments(&rest[end + 1..]);
            found
                .entry(rest[..end].to_string())
                .or_default()
                .insert(count);
        }
    }
    found
}

/// Arguments up to the bracket that closes them.
fn arguments(text: &str) -> usize {
    let (mut depth, mut commas) = (0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => {
                let inside = text[..at].trim();
                return if matches!(inside, "" | "void") {
                    0
                } else {
                    commas + 1
                };
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => commas += 1,
            _ => {}
        }
    }
    panic!("a bracket is open: {text}");
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skip(tool: &str) {
    let required = std::env::var_os("TABLA_REQUIRE_PACKAGING").is_some_and(|v| v == "1");
    assert!(!required, "{tool} is required and not there");
    eprintln!("SKIPPED: no {tool}: the module maps for Swift are not read");
}

/// What a command complains of that fails.
fn fails(command: &mut Command) -> String {
    let (succeeded, out, err) = outcome(command);
    assert!(!succeeded, "{command:?} succeeds\n{out}{err}");
    err
}
