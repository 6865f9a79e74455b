//! Allocations that fail: every operation is an error or succeeds with memory of the reserve, and afterwards the same
//! operation gives the same result as before. The process never ends, and nothing leaks.
//!
//! Each case runs in a process of its own, which a failure may end.

use super::golden;
use serde_json::json;
use std::path::Path;
use std::process::Command;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::text::{ChatTemplate, Conversation, EncodeOptions, Grammar, TemplateTokens};
use tabla::{Error, ErrorKind, GenerateOptions, Model, Result, Sampling, Session, Source};
use tabla_testkit::failing::{self, count_allocations, with_failures};

/// Names the case that a child process runs.
const CASE: &str = "TABLA_TEST_FAILED_ALLOCATIONS";
/// The case with limited memory.
const LIMITED: &str = "limited";
/// Number of places of a case where allocations fail: all places, or evenly spaced.
const SAMPLES: u64 = 20;
/// The same with `TABLA_EXHAUSTIVE=1`.
const EXHAUSTIVE_SAMPLES: u64 = 20_000;
/// Maximum growth of the memory over all runs of a case.
const GROWTH_MAX: usize = 64 << 10;

/// An operation, whose result is a text.
struct Case {
    name: &'static str,
    source: fn() -> Source,
    run: fn(&Source, Option<&Model>) -> Result<String>,
    /// Whether the model is loaded before.
    uses_model: bool,
}

fn options() -> LoadOptions {
    LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .max_context(256)
}

fn load(source: &Source) -> Result<Model> {
    Model::builder(source.clone()).options(options()).load()
}

fn digest(source: &Source, _: Option<&Model>) -> Result<String> {
    load(source)?.digest().map(|digest| format!("{digest:?}"))
}

fn story() -> Source {
    Source::BuiltIn
}

/// A real model of 49,152 tokens, 13 MB of tokenizer.
fn real() -> Source {
    let folder = std::env::var_os("TABLA_TESTDATA").expect("checked before");
    let file = "gguf/SmolLM2-135M-Instruct.Q4_1.gguf";
    Source::Path(Path::new(&folder).join(file))
}

fn text(model: &Model, options: &GenerateOptions) -> Result<String> {
    let mut session = Session::new(model.clone());
    let prompt = session
        .tokenizer()
        .encode("Once upon a time", EncodeOptions::PROMPT)?;
    session.prefill(&prompt)?;
    let mut text = String::new();
    for piece in session.generate(options)? {
        text.push_str(&piece?.text);
    }
    Ok(text)
}

fn greedy() -> GenerateOptions {
    GenerateOptions::default()
        .sampling(Sampling::GREEDY)
        .max_tokens(12)
}

const CASES: &[Case] = &[
    Case {
        name: "load",
        source: story,
        run: digest,
        uses_model: false,
    },
    Case {
        name: "load a real model",
        source: real,
        run: digest,
        uses_model: false,
    },
    Case {
        name: "load and generate",
        source: || golden("gemma3"),
        run: |source, _| {
            let model = load(source)?;
            let mut session = Session::new(model);
            session.prefill(&[5, 6, 7])?;
            let tokens = session.generate(&greedy())?.map(|p| p.map(|p| p.token));
            Ok(format!("{:?}", tokens.collect::<Result<Vec<u32>>>()?))
        },
        uses_model: false,
    },
    Case {
        name: "generate",
        source: story,
        run: |_, model| text(model.expect("loaded"), &greedy()),
        uses_model: true,
    },
    Case {
        name: "grammar",
        source: story,
        run: |_, model| {
            let model = model.expect("loaded");
            let grammar = Grammar::Regex("[a-z ]{5,40}".to_string());
            let grammar = model.compile_grammar(&grammar)?;
            text(model, &greedy().grammar(Some(grammar)))
        },
        uses_model: true,
    },
    Case {
        name: "chat template",
        source: story,
        run: |_, model| {
            let model = model.expect("loaded");
            let source =
                "{% for m in messages %}{{ m.role ~ ': ' ~ m.content | trim }}{% endfor %}";
            let template = ChatTemplate::new(source, TemplateTokens::default())?;
            let messages = [json!({"role": "user", "content": " Hello "})];
            let prompt = template.render(&Conversation::new(&messages))?;
            let tokens = model.tokenizer().encode(&prompt, EncodeOptions::PROMPT)?;
            Ok(format!("{tokens:?}"))
        },
        uses_model: true,
    },
    Case {
        name: "saved session",
        source: story,
        run: |_, model| {
            let model = model.expect("loaded");
            let mut session = Session::new(model.clone());
            session.prefill(&[5, 6, 7, 8])?;
            let out_of_memory =
                |e: std::io::Error| Error::new(ErrorKind::Memory, "no folder").caused_by(e);
            let folder = tempfile::tempdir().map_err(out_of_memory)?;
            let path = folder.path().join("session");
            session.save(&path)?;
            let session = Session::load(model.clone(), &path)?;
            Ok(format!("{:?}", session.tokens()))
        },
        uses_model: true,
    },
];

/// Arguments of child processes.
const ARGUMENTS: [&str; 2] = ["--nocapture", "--test-threads=1"];

/// glibc then reserves no address space for further heaps.
#[cfg(target_os = "linux")]
const ONE_HEAP: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

/// Address space in KiB that the program takes without a model, and what is added to it, step by step. With the last,
/// the story model loads.
#[cfg(target_os = "linux")]
const LIMITS: (u64, u64, u64) = (4 << 10, 96 << 10, 6 << 10);

/// Loads and generates in processes whose address space is limited: also memory that is mapped, and threads, fail then.
#[cfg(target_os = "linux")]
fn check_limits(program: &Path) {
    let (first, last, step) = LIMITS;
    let base = Command::new(program)
        .args(ARGUMENTS)
        .env(CASE, "base")
        .env(ONE_HEAP.0, ONE_HEAP.1)
        .output();
    let base = String::from_utf8(base.expect("a child process").stdout).expect("text");
    let base = base
        .lines()
        .find_map(|line| line.split_once("VmSize:")?.1.trim().strip_suffix(" kB"));
    let base: u64 = base
        .and_then(|kib| kib.parse().ok())
        .expect("a number of KiB");
    let mut outcomes = [0, 0];
    for more in (first..last).step_by(usize::try_from(step).expect("small")) {
        let limit = (base + more).to_string();
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -v $1 && shift && exec \"$@\"", "sh", &limit]);
        let child = limited
            .arg(program)
            .args(ARGUMENTS)
            .env(CASE, LIMITED)
            .env(ONE_HEAP.0, ONE_HEAP.1);
        let child = child.output().expect("a child process");
        let out = String::from_utf8_lossy(&child.stdout);
        let err = String::from_utf8_lossy(&child.stderr);
        assert!(
            child.status.success(),
            "{limit} KiB: {}\n{out}\n{err}",
            child.status
        );
        let is_error = out.contains("limited: an error");
        assert!(
            is_error || out.contains("limited: a text"),
            "{limit} KiB: {out}"
        );
        outcomes[usize::from(is_error)] += 1;
    }
    println!(
        "limits of address space: {} loads, {} errors",
        outcomes[0], outcomes[1]
    );
    assert!(
        outcomes.iter().all(|count| *count > 0),
        "{outcomes:?}: no limit is between"
    );
}

/// Runs all cases, each in a child process.
pub(super) fn check_failures() {
    let program = std::env::current_exe().expect("the path of this program");
    #[cfg(target_os = "linux")]
    check_limits(&program);
    for case in CASES {
        if case.name.contains("real") && std::env::var_os("TABLA_TESTDATA").is_none() {
            println!("SKIPPED: {}: TABLA_TESTDATA is not set", case.name);
            continue;
        }
        let child = Command::new(&program)
            .args(ARGUMENTS)
            .env(CASE, case.name)
            .output()
            .expect("a child process");
        let out = String::from_utf8_lossy(&child.stdout);
        let err = String::from_utf8_lossy(&child.stderr);
        println!("{out}");
        assert!(
            child.status.success(),
            "{}: {}\n{out}\n{err}",
            case.name,
            child.status
        );
        assert!(out.contains("failures, "), "{}: no result", case.name);
    }
}

/// Returns the name of the case that this process runs.
pub(super) fn child_case() -> Option<String> {
    std::env::var(CASE).ok()
}

/// Runs a case.
pub(super) fn run_case(name: &str) {
    match name {
        "base" => print!(
            "{}",
            std::fs::read_to_string("/proc/self/status").expect("a status")
        ),
        LIMITED => run_limited(),
        name => run_failures(name),
    }
}

/// Loads and generates with whatever memory there is.
fn run_limited() {
    let outcome = load(&Source::BuiltIn).and_then(|model| text(&model, &greedy()));
    match outcome {
        Ok(text) => {
            assert!(!text.is_empty(), "no text");
            println!("limited: a text");
        }
        Err(e) if matches!(e.kind(), ErrorKind::Memory | ErrorKind::Io) => {
            println!("limited: an error: {e}");
        }
        Err(e) => panic!("{:?}: {e}", e.kind()),
    }
}

/// Fails allocations of a case.
fn run_failures(name: &str) {
    let case = CASES.iter().find(|case| case.name == name);
    let case = case.expect("a case of this name");
    let source = (case.source)();
    let model = case.uses_model.then(|| load(&source).expect("load"));
    let run = || (case.run)(&source, model.as_ref());
    let expected = run().expect("without failures");
    let count = count_allocations(|| drop(run()));
    let exhaustive = std::env::var_os("TABLA_EXHAUSTIVE").is_some_and(|v| v == "1");
    let samples = if exhaustive {
        EXHAUSTIVE_SAMPLES
    } else {
        SAMPLES
    };
    let step = count.div_ceil(samples).max(1);
    let before = failing::bytes();
    let mut errors = 0;
    for failures in [1, u64::MAX] {
        for from in (0..count).step_by(usize::try_from(step).expect("small")) {
            let (out, _) = with_failures(from, failures, run);
            match out {
                Ok(text) => assert_eq!(text, expected, "allocation {from} failed"),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Memory, "allocation {from}: {e}");
                    errors += 1;
                }
            }
            let reserved = tabla::reserve::bytes_used();
            assert!(
                reserved < GROWTH_MAX,
                "{reserved} bytes of the reserve are in use"
            );
            assert_eq!(run().expect("without failures"), expected);
        }
    }
    let growth = failing::bytes().wrapping_sub(before).cast_signed();
    println!(
        "{name}: {count} allocations, every {step}th fails: {errors} failures, {growth} bytes more"
    );
    assert!(growth < GROWTH_MAX.cast_signed(), "{growth} bytes leaked");
}
