//! Tests of the C ABI with C programs: `smoke.c`, `sessions.c`, `hooks.c` and `transcribe.c` of
//! `tests/capi` with both libraries, random calls from several threads (`tests/capi/random.c`), and the
//! examples of `bindings/c`.
//!
//! Skipped with a message without a C compiler or valgrind. With `TABLA_REQUIRE_VALGRIND=1`, a
//! missing valgrind is a failure. Linux only: other systems have other native libraries and symbol
//! listings.
#![cfg(target_os = "linux")]

#[expect(dead_code, reason = "the tests of the program use more of it")]
#[path = "../../../cli/tests/cli/speech_model.rs"]
mod speech_model;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const STRICT: &[&str] = &["-Wall", "-Wextra", "-pedantic", "-Werror"];

/// System libraries that the static library depends on.
const NATIVE: &[&str] = &["-lpthread", "-ldl", "-lm"];

#[test]
fn contract_holds() {
    let no_model = scratch("contract").join("no-model.gguf");
    std::fs::write(&no_model, "This is no model.").expect("target folder is writable");
    let version = env!("CARGO_PKG_VERSION").as_ref();
    let story = root().join("models/story.gguf");
    checks("smoke", &[version, no_model.as_os_str(), story.as_os_str()]);
}

#[test]
fn chats_and_sessions_behave_as_documented() {
    let saved = scratch("sessions").join("session");
    let classifier = root().join("tests/golden/cross_encoder/xlm_roberta_labels/model.gguf");
    checks_mostly_without_valgrind("sessions", &[saved.as_os_str(), classifier.as_os_str()]);
}

#[test]
fn hooks_behave_as_documented() {
    let (folder, golden) = (scratch("hooks"), root().join("tests/golden"));
    let model = golden.join("arch/llama/model.gguf");
    let adapter = golden.join("lora/llama/adapter.gguf");
    checks_mostly_without_valgrind(
        "hooks",
        &[&folder, &model, &adapter].map(|path| path.as_os_str()),
    );
}

#[test]
fn transcriptions_behave_as_documented() {
    let folder = scratch("speech");
    let [model, short, long] = ["model.bin", "short.wav", "long.wav"].map(|name| folder.join(name));
    // Windows of 1.5 seconds: with those of 30 seconds, the test takes more than a minute under valgrind.
    let bytes = speech_model::ggml_model_with_context(speech_model::ENGLISH, 75);
    std::fs::write(&model, bytes).expect("target folder is writable");
    std::fs::write(&short, speech_model::wav(2, None)).expect("target folder is writable");
    std::fs::write(&long, speech_model::wav(31, None)).expect("target folder is writable");
    checks(
        "transcribe",
        &[&model, &short, &long].map(|path| path.as_os_str()),
    );
}

#[test]
fn header_compiles_as_cpp() {
    let Some(compiler) = tool("CXX", "c++") else {
        return skip("no C++ compiler: the header was not tested as C++");
    };
    let header = root().join("include/tabla.h");
    let mut command = Command::new(compiler);
    command
        .args(STRICT)
        .args(["-std=c++17", "-fsyntax-only", "-x", "c++"]);
    run(command.arg(header));
}

#[test]
fn exports_match_the_list() {
    let Some(nm) = tool("NM", "nm") else {
        return skip("no nm: exports were not compared");
    };
    let library = libraries().join("libtabla.so");
    if !library.exists() {
        return skip("no libtabla.so on this system: exports were not compared");
    }
    let out = run(Command::new(nm).args(["-D", "--defined-only"]).arg(library));
    let mut exports: Vec<_> = text(&out.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(|name| name.split('@').next().unwrap_or_default().to_string())
        .collect();
    exports.sort();
    let list = std::fs::read_to_string(root().join("include/exports.txt")).unwrap_or_default();
    let expected: Vec<_> = list.lines().map(str::to_string).collect();
    assert_eq!(
        exports, expected,
        "exports of the library (left) differ from include/exports.txt (right)"
    );
}

/// Default number of calls of each thread of `random.c`. `TABLA_CALLS` overrides it.
const CALLS: &str = "250000";

/// Number of calls under valgrind, which is many times slower.
const CALLS_UNDER_VALGRIND: &str = "2000";

#[test]
fn random_calls_are_safe() {
    let Some(program) = compile(&tested("random"), "c11", "random", &dynamic(&libraries())) else {
        return;
    };
    let calls = std::env::var("TABLA_CALLS").unwrap_or_else(|_| CALLS.to_string());
    let out = run(on_cpu(Command::new(&program)).args([&calls, "1"]));
    assert!(out.stderr.is_empty(), "{}", text(&out.stderr));
    let inputs = root().join("fuzz/corpus/capi").read_dir();
    let inputs = inputs.expect("inputs of the fuzz target");
    let paths: Vec<_> = inputs
        .map(|input| input.expect("an input").path())
        .collect();
    assert!(!paths.is_empty(), "the fuzz target has no inputs");
    run(on_cpu(Command::new(&program)).args(paths));
    under_valgrind(&program, &[CALLS_UNDER_VALGRIND.as_ref(), "2".as_ref()]);
}

/// Every example: arguments, input, and a part of the expected output.
const EXAMPLES: [(&str, &[&str], &str, &str); 6] = [
    ("chat", &[], "Tell me of a cat.\nAnd then?\n", "\n> "),
    ("embed", &[], "", " 1.000  A girl plays with a ball.\n"),
    ("in_program", &["One day"], "", ". "),
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
fn examples_print_expected_output() {
    let folder = root().join("bindings/c/examples");
    let story = root().join("models/story.gguf");
    let mut flags = dynamic(&libraries());
    flags.push(format!("-DMODEL={:?}", story.display().to_string()));
    for (name, arguments, input, expected) in EXAMPLES {
        let source = folder.join(format!("{name}.c"));
        let Some(program) = compile(&source, "c99", "examples", &flags) else {
            return;
        };
        let mut command = on_cpu(Command::new(&program));
        let out = run_with_input(command.args(arguments), input);
        let output = text(&out.stdout);
        assert!(output.contains(expected), "{name}: {output}");
    }
    let sources = std::fs::read_dir(&folder).expect("examples exist");
    assert_eq!(
        sources.count(),
        EXAMPLES.len(),
        "an example is missing in EXAMPLES"
    );
}

#[test]
fn programs_of_the_documentation_run() {
    let mut programs = 0;
    for page in ["README.md", "docs/c.md"] {
        let text = std::fs::read_to_string(root().join(page)).expect("page exists");
        for (at, block) in text.split("\n```c\n").skip(1).enumerate() {
            let program = block.split("\n```").next().unwrap_or_default();
            let stem = page.replace(['/', '.'], "_");
            let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{stem}_{at}.c"));
            std::fs::write(&source, format!("{program}\n")).expect("target folder is writable");
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
    assert!(
        programs > 5,
        "expected more than 5 programs in the documentation, got {programs}"
    );
}

/// Runs a program of checks with the static library, and with the shared one also under valgrind.
fn checks(name: &str, arguments: &[&OsStr]) {
    if let Some(program) = checks_without_valgrind(name, arguments) {
        under_valgrind(&program, arguments);
    }
}

/// As [`checks`], but with valgrind in exhaustive runs only: the program takes about a minute under it, and
/// `tests/sanitizers.sh` runs it too.
fn checks_mostly_without_valgrind(name: &str, arguments: &[&OsStr]) {
    let is_exhaustive = std::env::var_os("TABLA_EXHAUSTIVE").is_some_and(|v| v == "1");
    match is_exhaustive {
        true => checks(name, arguments),
        false => drop(checks_without_valgrind(name, arguments)),
    }
}

/// Runs a program of checks with both libraries. Returns the program with the shared one; `None` without a C
/// compiler.
fn checks_without_valgrind(name: &str, arguments: &[&OsStr]) -> Option<PathBuf> {
    let mut last = None;
    let archive = vec![libraries().join("libtabla.a").display().to_string()];
    for (kind, link) in [("static", archive), ("dynamic", dynamic(&libraries()))] {
        let program = compile(&tested(name), "c99", kind, &link)?;
        let out = run(on_cpu(Command::new(&program)).args(arguments));
        assert!(
            text(&out.stdout).ends_with(" checks passed, 0 failed\n") && out.stderr.is_empty(),
            "the library prints: {}{}",
            text(&out.stdout),
            text(&out.stderr)
        );
        last = Some(program);
    }
    last
}

/// Linker arguments of the shared library.
fn dynamic(libraries: &Path) -> Vec<String> {
    let folder = libraries.display();
    vec![
        format!("-L{folder}"),
        "-ltabla".to_string(),
        format!("-Wl,-rpath,{folder}"),
    ]
}

/// Path of a program in `tests/capi`.
fn tested(name: &str) -> PathBuf {
    root().join(format!("tests/capi/{name}.c"))
}

/// Compiles a program. Returns `None` without a compiler.
fn compile(source: &Path, standard: &str, kind: &str, link: &[String]) -> Option<PathBuf> {
    let Some(compiler) = tool("CC", "cc") else {
        skip("no C compiler: the C ABI was not tested");
        return None;
    };
    let program = scratch(kind).join(source.file_stem().expect("source file has a name"));
    let mut command = Command::new(compiler);
    command.args(STRICT).args(["-O1", "-g"]);
    command.arg(format!("-std={standard}"));
    command.arg("-I").arg(root().join("include"));
    command.arg(source);
    command.arg("-o").arg(&program);
    run(command.args(link).args(NATIVE));
    Some(program)
}

/// A folder for programs and their files.
fn scratch(kind: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{kind}"));
    std::fs::create_dir_all(&folder).expect("target folder is writable");
    folder
}

/// Disables GPU drivers, so that the program runs on the CPU and leaks are not those of drivers.
fn on_cpu(mut command: Command) -> Command {
    command.env("VK_ICD_FILENAMES", "/dev/null");
    // Cargo's value may contain a folder with an older build of the library.
    command.env("LD_LIBRARY_PATH", libraries());
    command
}

/// Runs a program under valgrind, which checks memory accesses and leaks.
fn under_valgrind(program: &Path, arguments: &[&OsStr]) {
    let Some(valgrind) = tool("VALGRIND", "valgrind") else {
        let required = std::env::var_os("TABLA_REQUIRE_VALGRIND").is_some_and(|v| v == "1");
        assert!(!required, "valgrind is required but not installed");
        return skip("no valgrind: memory accesses and leaks were not checked");
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

/// Returns the folder of `libtabla.so` and `libtabla.a`, which cargo puts next to this test.
fn libraries() -> PathBuf {
    let this = std::env::current_exe().expect("test executable has a path");
    let folder = this
        .parent()
        .expect("test executable has a parent folder")
        .to_path_buf();
    if folder.join("libtabla.a").exists() {
        return folder;
    }
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["build", "--package", "tabla-capi"])
        .current_dir(root());
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    run(&mut command);
    folder
        .parent()
        .expect("deps has a parent folder")
        .to_path_buf()
}

/// Returns the program in an environment variable, or the default one, if it can be run.
fn tool(variable: &str, default: &str) -> Option<String> {
    let name = std::env::var(variable).unwrap_or_else(|_| default.to_string());
    let runs = Command::new(&name).arg("--version").output();
    runs.is_ok_and(|out| out.status.success()).then_some(name)
}

fn run(command: &mut Command) -> Output {
    run_with_input(command, "")
}

/// Runs a program with an input. It must succeed.
fn run_with_input(command: &mut Command, input: &str) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = piped.stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // Fails if the program has exited without reading its input.
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

#[expect(clippy::print_stderr, reason = "skipped tests are reported")]
fn skip(reason: &str) {
    eprintln!("SKIPPED: {reason}");
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
