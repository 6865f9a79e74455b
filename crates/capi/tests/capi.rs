//! The C ABI as a C program sees it: `tests/capi/smoke.c` against the header and both libraries, and
//! random calls of several threads, `tests/capi/random.c`, and the examples of `bindings/c`.
//!
//! Needs a C compiler; where there is none, or no valgrind, it says so and skips. With
//! `TABLA_REQUIRE_VALGRIND=1` a missing valgrind fails. Only Linux is tried: the native libraries and
//! the listing of exports are other ones elsewhere.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const STRICT: &[&str] = &["-Wall", "-Wextra", "-pedantic", "-Werror"];

/// What Rust's standard library needs beside the static library.
const NATIVE: &[&str] = &["-lpthread", "-ldl", "-lm"];

#[test]
fn a_c_program_links_the_dynamic_library() {
    smoke("dynamic", dynamic);
}

#[test]
fn a_c_program_links_the_static_library() {
    smoke("static", |libraries| {
        vec![libraries.join("libtabla.a").display().to_string()]
    });
}

#[test]
fn the_header_is_c_plus_plus_as_well() {
    let Some(compiler) = tool("CXX", "c++") else {
        return skip("no C++ compiler: the header is not tried in C++");
    };
    let header = root().join("include/tabla.h");
    let mut command = Command::new(compiler);
    command
        .args(STRICT)
        .args(["-std=c++17", "-fsyntax-only", "-x", "c++"]);
    run(command.arg(header));
}

#[test]
fn the_library_exports_what_it_should() {
    let Some(nm) = tool("NM", "nm") else {
        return skip("no nm: the exports are not compared");
    };
    let library = libraries().join("libtabla.so");
    if !library.exists() {
        return skip("no libtabla.so on this system: the exports are not compared");
    }
    let out = run(Command::new(nm).args(["-D", "--defined-only"]).arg(library));
    let mut found: Vec<_> = text(&out.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(|name| name.split('@').next().unwrap_or_default().to_string())
        .collect();
    found.sort();
    let list = std::fs::read_to_string(root().join("include/exports.txt")).unwrap_or_default();
    let wanted: Vec<_> = list.lines().map(str::to_string).collect();
    assert_eq!(
        found, wanted,
        "the library's exports (left) are not those of include/exports.txt (right)"
    );
}

/// Calls of each thread that `random.c` makes here; `TABLA_CALLS` asks for more.
const CALLS: &str = "250000";

/// And under valgrind, where a call takes many times as long.
const CALLS_UNDER_VALGRIND: &str = "2000";

#[test]
fn random_calls_harm_nothing() {
    let Some(program) = compile(&tested("random"), "c11", "random", &dynamic(&libraries())) else {
        return;
    };
    let calls = std::env::var("TABLA_CALLS").unwrap_or_else(|_| CALLS.to_string());
    let out = run(on_cpu(Command::new(&program)).args([&calls, "1"]));
    assert!(out.stderr.is_empty(), "{}", text(&out.stderr));
    under_valgrind(&program, &[CALLS_UNDER_VALGRIND.as_ref(), "2".as_ref()]);
}

/// Every example, with what it is given and what it prints at least.
const EXAMPLES: [(&str, &[&str], &str, &str); 5] = [
    ("chat", &[], "Tell me of a cat.\nAnd then?\n", "\n> "),
    ("embed", &[], "", " 1.000  A girl plays with a ball.\n"),
    ("threads", &[], "", "3: Once upon a time"),
    (
        "progress",
        &[],
        "",
        "18/18 [==============================]",
    ),
    ("cancel", &["1"], "", "\ncancelled after "),
];

#[test]
fn the_examples_do_what_they_say() {
    let folder = root().join("bindings/c/examples");
    for (name, arguments, input, expected) in EXAMPLES {
        let source = folder.join(format!("{name}.c"));
        let Some(program) = compile(&source, "c99", "examples", &dynamic(&libraries())) else {
            return;
        };
        let mut command = on_cpu(Command::new(&program));
        let out = fed(command.args(arguments), input);
        let said = text(&out.stdout);
        assert!(said.contains(expected), "{name}: {said}");
    }
    let sources = std::fs::read_dir(&folder).expect("the examples are there");
    assert_eq!(sources.count(), EXAMPLES.len(), "an example is not run");
}

#[test]
fn the_programs_of_the_pages_run_as_they_stand() {
    let mut programs = 0;
    for page in ["README.md", "docs/c.md"] {
        let text = std::fs::read_to_string(root().join(page)).expect("the page is there");
        for (at, block) in text.split("\n```c\n").skip(1).enumerate() {
            let program = block.split("\n```").next().unwrap_or_default();
            let stem = page.replace(['/', '.'], "_");
            let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{stem}_{at}.c"));
            std::fs::write(&source, format!("{program}\n")).expect("the target folder takes files");
            let Some(program) = compile(&source, "c99", "pages", &dynamic(&libraries())) else {
                return;
            };
            let out = run(&mut on_cpu(Command::new(&program)));
            assert!(
                !out.stdout.is_empty() && out.stderr.is_empty(),
                "{page}, program {at}"
            );
            programs += 1;
        }
    }
    assert!(programs > 5, "{programs} programs are on the pages");
}

/// Compiles the program and runs it; that of the shared library once more under valgrind.
fn smoke(kind: &str, link: impl Fn(&Path) -> Vec<String>) {
    let Some(program) = compile(&tested("smoke"), "c99", kind, &link(&libraries())) else {
        return;
    };
    let scratch = program.parent().expect("it lies in a folder");
    let no_model = scratch.join("no-model.gguf");
    std::fs::write(&no_model, "This is no model.").expect("the target folder takes files");
    let saved = scratch.join("session");
    let version = env!("CARGO_PKG_VERSION").as_ref();
    let arguments = [version, no_model.as_os_str(), saved.as_os_str()];
    let out = run(on_cpu(Command::new(&program)).args(arguments));
    assert!(
        text(&out.stdout).ends_with(" checks passed, 0 failed\n") && out.stderr.is_empty(),
        "the library prints: {}{}",
        text(&out.stdout),
        text(&out.stderr)
    );
    if kind == "dynamic" {
        under_valgrind(&program, &arguments);
    }
}

/// What links the shared library.
fn dynamic(libraries: &Path) -> Vec<String> {
    let folder = libraries.display();
    vec![
        format!("-L{folder}"),
        "-ltabla".to_string(),
        format!("-Wl,-rpath,{folder}"),
    ]
}

/// A program of `tests/capi`.
fn tested(name: &str) -> PathBuf {
    root().join(format!("tests/capi/{name}.c"))
}

/// Compiles a program, where there is a compiler.
fn compile(source: &Path, standard: &str, kind: &str, link: &[String]) -> Option<PathBuf> {
    let Some(compiler) = tool("CC", "cc") else {
        skip("no C compiler: the C ABI is not tried");
        return None;
    };
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{kind}"));
    std::fs::create_dir_all(&scratch).expect("the target folder takes folders");
    let program = scratch.join(source.file_stem().expect("a file has a name"));
    let mut command = Command::new(compiler);
    command.args(STRICT).args(["-O1", "-g"]);
    command.arg(format!("-std={standard}"));
    command.arg("-I").arg(root().join("include"));
    command.arg(source);
    command.arg("-o").arg(&program);
    run(command.args(link).args(NATIVE));
    Some(program)
}

/// Leaves the drivers of the machine out: what runs here is the CPU, and what leaks is ours.
fn on_cpu(mut command: Command) -> Command {
    command.env("VK_ICD_FILENAMES", "/dev/null");
    // Cargo's own value may name a folder with an older build of the library.
    command.env("LD_LIBRARY_PATH", libraries());
    command
}

/// Runs a program where every access to memory is looked at, and what is lost at the end.
fn under_valgrind(program: &Path, arguments: &[&OsStr]) {
    let Some(valgrind) = tool("VALGRIND", "valgrind") else {
        let required = std::env::var_os("TABLA_REQUIRE_VALGRIND").is_some_and(|v| v == "1");
        assert!(!required, "valgrind is required and not there");
        return skip("no valgrind: leaks and bad memory accesses are not looked for");
    };
    let mut command = on_cpu(Command::new(valgrind));
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
    command.args([
        "--errors-for-leak-kinds=definite,indirect",
        "--show-leak-kinds=definite",
    ]);
    let suppressions = root().join("crates/capi/tests/valgrind.supp");
    command.arg(format!("--suppressions={}", suppressions.display()));
    run(command.arg(program).args(arguments));
}

/// The folder of `libtabla.so` and `libtabla.a`: cargo makes them beside this test.
fn libraries() -> PathBuf {
    let this = std::env::current_exe().expect("a test has a path");
    let beside = this
        .parent()
        .expect("a file lies in a folder")
        .to_path_buf();
    if beside.join("libtabla.a").exists() {
        return beside;
    }
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["build", "--package", "tabla-capi"])
        .current_dir(root());
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    run(&mut command);
    beside
        .parent()
        .expect("deps lies in a folder")
        .to_path_buf()
}

/// The program that an environment variable names, or the usual one, if it runs.
fn tool(variable: &str, usual: &str) -> Option<String> {
    let name = std::env::var(variable).unwrap_or_else(|_| usual.to_string());
    let runs = Command::new(&name).arg("--version").output();
    runs.is_ok_and(|out| out.status.success()).then_some(name)
}

fn run(command: &mut Command) -> Output {
    fed(command, "")
}

/// Runs a program to its end, with this as its input.
fn fed(command: &mut Command, input: &str) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = piped.stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let mut stdin = child.stdin.take().expect("it is piped");
    // Who reads nothing may have ended.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let out = child
        .wait_with_output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}{}",
        out.status,
        text(&out.stdout),
        text(&out.stderr)
    );
    out
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
