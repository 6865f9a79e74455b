//! Checks of `bindings/swift` without a Swift compiler: module maps, calls of C functions, the
//! artifact bundle, and the examples of its documentation.
//!
//! Requires clang; skipped without it, unless `TABLA_REQUIRE_PACKAGING=1`.
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

/// Functions that the package does not wrap, and the reason.
const NOT_WRAPPED: &[(&[&str], &str)] = &[
    (
        &[
            "tabla_embed",
            "tabla_generate",
            "tabla_model_session",
            "tabla_prefill",
        ],
        "a Session replaces the default session of a model",
    ),
    (
        &["tabla_session_chat", "tabla_session_generate"],
        "answers are streamed, so that a task can be cancelled between two pieces",
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
        "concurrent prompts use one Session per task",
    ),
    (&["tabla_load_model"], "replaced by tabla_model_load"),
    (
        &["tabla_session_move"],
        "the model of a Session is a constant: a new one continues with its tokens",
    ),
    (
        &["tabla_transcribe", "tabla_transcribe_file"],
        "segments are read one by one, so that a task can be cancelled",
    ),
];

#[test]
fn clang_accepts_the_module_map() {
    if !has("clang") {
        return skip("clang");
    }
    let include = xtask::root().join("include");
    compile_with_clang(
        "system",
        &package().join("Sources/CTabla/module.modulemap"),
        &include,
    );
}

#[test]
fn sources_match_the_header() {
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
            assert!(is_known, "{path:?}: {word} is not declared in the header");
        }
        for (name, counts) in calls(&source) {
            assert_eq!(counts, declared[&name], "{path:?}: arguments of {name}");
            called.insert(name);
        }
    }
    let not_wrapped: BTreeSet<String> = NOT_WRAPPED
        .iter()
        .flat_map(|(names, _)| names.iter().map(ToString::to_string))
        .collect();
    let twice: Vec<_> = called.intersection(&not_wrapped).collect();
    assert!(
        twice.is_empty(),
        "called but listed in NOT_WRAPPED: {twice:?}"
    );
    let both: Vec<_> = called.union(&not_wrapped).map(String::as_str).collect();
    assert_eq!(both, exported.lines().collect::<Vec<_>>());
}

#[test]
fn documented_examples_are_tested() {
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
    assert!(blocks.len() > 4, "docs/swift.md has examples");
    for block in blocks {
        let (block, _) = block.split_once("```").expect("the code block is closed");
        let found = sources.iter().any(|source| source.contains(&lines(block)));
        assert!(
            found,
            "example of docs/swift.md not found in tests or examples:\n{block}"
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn artifact_bundle_can_be_linked() {
    let out = scratch("bundle").join("CTabla.artifactbundle");
    let triple = "x86_64-unknown-linux-gnu,x86_64-unknown-linux";
    let output = run(bundle(&out).arg(format!("{triple}={}", archive().display())));
    assert_eq!(output, format!("{}\n", out.display()));
    assert_eq!(
        text(&out.join("info.json")),
        INFO.replace("VERSION", env!("CARGO_PKG_VERSION"))
    );
    let header = text(&xtask::root().join("include/tabla.h"));
    assert_eq!(text(&out.join("include/tabla.h")), header);
    if !has("clang") {
        return skip("clang");
    }
    compile_with_clang(
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
fn failed_bundles_leave_no_files() {
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
        let left: Vec<_> = std::fs::read_dir(&folder)
            .expect("the folder exists")
            .collect();
        assert!(left.is_empty(), "{argument}: remaining files: {left:?}");
    }
    let other = folder.join("other");
    let why = fails(bundle(&other).arg("a=b"));
    assert!(why.contains(".artifactbundle"), "{why}");
    std::fs::create_dir_all(&out).expect("the folder is created");
    let why = fails(bundle(&out).arg("a=b"));
    assert!(why.contains("is not a bundle"), "{why}");
}

#[test]
#[cfg(not(target_os = "macos"))]
fn framework_requires_macos() {
    let why = fails(&mut Command::new(package().join("scripts/xcframework.sh")));
    assert!(why.contains("requires macOS"), "{why}");
}

/// Compiles a program that imports the module with clang, as C and as Objective-C.
fn compile_with_clang(name: &str, map: &Path, include: &Path) {
    let cache = scratch(&format!("{name}-cache"));
    let import = source(&format!("{name}-import"));
    std::fs::write(
        &import,
        "@import CTabla;\nTablaStatus (*f)(TablaSession *) = tabla_session_end;\n\
         const char *name(void) { return tabla_status_name(TABLA_ERROR_BUSY); }\n",
    )
    .expect("the file is written");
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

/// Writes a C program that uses the library.
fn source(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("swift-{name}.c"));
    std::fs::write(
        &path,
        "#include <tabla.h>\n#include <stdio.h>\nint main(void) { fputs(tabla_version(), stdout); return 0; }\n",
    )
    .expect("the target folder is writable");
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

/// Creates an empty folder.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("swift-{name}"));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the target folder is writable");
    path
}

/// Returns the Swift files below a folder, without build output.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{folder:?}: {e}")) {
        let path = entry.expect("the folder is readable").path();
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
        all + part.split_once("*/").expect("the comment is closed").1
    })
}

/// Returns the called or declared functions of the library with their numbers of arguments.
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

/// Counts arguments up to the closing parenthesis.
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
    panic!("missing closing parenthesis: {text}");
}

#[expect(clippy::print_stderr, reason = "reports a skipped test")]
fn skip(tool: &str) {
    let required = std::env::var_os("TABLA_REQUIRE_PACKAGING").is_some_and(|v| v == "1");
    assert!(!required, "{tool} is required but not installed");
    eprintln!("SKIPPED: {tool} not found, Swift module maps not tested");
}

/// Returns stderr of a command that must fail.
fn fails(command: &mut Command) -> String {
    let (succeeded, out, err) = outcome(command);
    assert!(!succeeded, "{command:?} succeeded\n{out}{err}");
    err
}
