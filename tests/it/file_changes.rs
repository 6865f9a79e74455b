//! Model files that other programs truncate or overwrite while a model is used. Each case runs in a process of its own,
//! which a fault may end.

use crate::common::{golden, has_gpu, session};
use crate::compiled::compile;
use crate::temp_folder::Folder;
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use tabla::format::catch_file_faults;
use tabla::load::{CpuExperts, DeviceChoice, LoadMode, LoadOptions, STAGES, WeightMemory};
use tabla::{ErrorKind, GenerateOptions, Model, Session};

/// The signal of a fault on Linux, except on MIPS and SPARC.
const SIGBUS: i32 = 7;
/// Names the case that a child process runs.
const CASE: &str = "TABLA_TEST_FILE_CHANGE";

fn options(mode: LoadMode) -> LoadOptions {
    LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .weights(WeightMemory::Mapped)
        .load_mode(mode)
        .max_context(128)
}

/// A copy of the story model, 3.3 MB.
fn model(folder: &Folder) -> PathBuf {
    let path = folder.0.join("model.gguf");
    std::fs::copy(golden("../../models/story.gguf"), &path).expect("a copy");
    path
}

fn truncate(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("a file");
    file.set_len(bytes).expect("truncated");
}

fn overwrite(path: &Path) {
    let mut file = OpenOptions::new().write(true).open(path).expect("a file");
    file.seek(SeekFrom::Start(1 << 20)).expect("a place");
    file.write_all(&vec![0x55; 2 << 20]).expect("written");
    file.sync_all().expect("written");
}

const PROMPT: [u32; 5] = [1, 40, 77, 13, 300];

/// Returns the tokens after a prompt.
fn tokens(s: &mut Session) -> tabla::Result<Vec<u32>> {
    s.truncate(0);
    s.prefill(&PROMPT)?;
    let greedy = GenerateOptions::default().max_tokens(12);
    s.generate(&greedy)?
        .map(|piece| piece.map(|piece| piece.token))
        .collect()
}

/// Truncates the file after the first token of a generation, and returns its error and that of the next prompt.
fn truncate_while_generating(path: &Path) -> [tabla::Error; 2] {
    let mut s = session(path, &options(LoadMode::Auto));
    s.prefill(&PROMPT).expect("the file is whole");
    // More tokens than a generation computes before they are read.
    let greedy = GenerateOptions::default().max_tokens(100).ignore_eos(true);
    let mut pieces = s.generate(&greedy).expect("a generation");
    pieces.next().expect("a token").expect("a token");
    truncate(path, 1 << 20);
    let error = pieces.find_map(Result::err).expect("the file is truncated");
    drop(pieces);
    let next = tokens(&mut s).expect_err("the file is truncated");
    [error, next]
}

/// A file that was truncated while a pass reads it.
fn truncated() {
    catch_file_faults().expect("a handler");
    let folder = Folder::new("truncated");
    let path = model(&folder);
    let [error, next] = truncate_while_generating(&path);
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.message().contains("model.gguf"), "{error}");
    assert!(error.message().contains("was truncated"), "{error}");
    assert!(
        matches!(next.kind(), ErrorKind::State | ErrorKind::Io),
        "{next}"
    );
    assert!(next.message().contains("model.gguf"), "{next}");
    assert!(next.message().contains("load it again"), "{next}");
    // A whole file can be loaded again.
    let path = model(&folder);
    tokens(&mut session(&path, &options(LoadMode::Mmap))).expect("a whole file");
}

/// A file that is truncated between any two stages of loading is an error of that load or of the first request.
fn truncated_while_loading() {
    catch_file_faults().expect("a handler");
    let folder = Folder::new("truncated-load");
    let mut errors = 0;
    for ended in 1..=STAGES {
        for weights in [WeightMemory::Mapped, WeightMemory::Packed] {
            let path = model(&folder);
            let options = options(LoadMode::Auto).weights(weights);
            let builder = Model::builder(&path)
                .options(options)
                .on_progress(|progress| {
                    if progress.ended == ended {
                        truncate(&path, 4096);
                    }
                });
            let done = builder
                .load()
                .and_then(|model| tokens(&mut Session::new(model)));
            // After the last stages, packed weights are in memory.
            errors += u32::from(done.is_err());
        }
    }
    assert!(errors > STAGES, "{errors} errors");
}

/// The same without a handler.
fn truncated_uncaught() {
    let folder = Folder::new("uncaught");
    let _ = truncate_while_generating(&model(&folder));
}

/// Another fault than one of a model file.
fn other_fault() {
    catch_file_faults().expect("a handler");
    // The handler of Rust's standard library returns, and leaves the default action for the next signal.
    for _ in 0..2 {
        let id = std::process::id().to_string();
        let raised = Command::new("kill").args(["-BUS", &id]).status();
        assert!(raised.expect("kill").success());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// A process keeps a file that was replaced by renaming, or deleted.
fn replaced() {
    let folder = Folder::new("replaced");
    let path = model(&folder);
    let mut s = session(&path, &options(LoadMode::Mmap));
    let expected = tokens(&mut s).expect("the file is whole");
    let other = folder.0.join("other.gguf");
    std::fs::write(&other, b"Not a model.").expect("another file");
    std::fs::rename(&other, &path).expect("renamed");
    assert_eq!(tokens(&mut s).expect("the old file"), expected);
    std::fs::remove_file(&path).expect("deleted");
    assert_eq!(tokens(&mut s).expect("the old file"), expected);
}

/// Weights that were overwritten are not computed with.
fn overwritten() {
    let folder = Folder::new("overwritten");
    let path = model(&folder);
    let mut s = session(&path, &options(LoadMode::Mmap));
    tokens(&mut s).expect("the file is whole");
    overwrite(&path);
    let error = tokens(&mut s).expect_err("another file");
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
    assert!(error.message().contains("model.gguf"), "{error}");
    assert!(error.message().contains("has changed"), "{error}");
}

/// A model that was read into memory does not depend on its file, also a compiled one.
fn read() {
    let folder = Folder::new("read");
    let compiled = folder.0.join("model.tabla");
    let expected = tokens(&mut session(&model(&folder), &options(LoadMode::Mmap)));
    let expected = expected.expect("the file is whole");
    for weights in [WeightMemory::Mapped, WeightMemory::Auto] {
        for path in [model(&folder), compiled.clone()] {
            if path == compiled {
                let original = model(&folder);
                compile(
                    &original,
                    &compiled,
                    &[DeviceChoice::Cpu],
                    &options(LoadMode::Auto),
                );
            }
            let mapped = session(&path, &options(LoadMode::Mmap).weights(weights));
            let mut s = session(&path, &options(LoadMode::Read).weights(weights));
            let digests = [&mapped, &s].map(|s| s.model().digest().expect("a digest"));
            assert_eq!(digests[0], digests[1]);
            overwrite(&path);
            assert_eq!(tokens(&mut s).expect("in memory"), expected);
            truncate(&path, 0);
            assert_eq!(tokens(&mut s).expect("in memory"), expected);
            let text = s.tokenizer().decode_lossy(&expected, Default::default());
            assert!(!text.expect("in memory").is_empty());
        }
    }
}

/// Weights of experts on the CPU, whose neighbours in the file a GPU uploads and releases.
fn read_for_gpu() {
    let experts = options(LoadMode::Read)
        .device(DeviceChoice::Gpu)
        .cpu_experts(CpuExperts::All);
    let path = golden("arch/mixtral/model.gguf");
    let [mapped, read] = [LoadMode::Mmap, LoadMode::Read].map(|mode| {
        let mut s = session(&path, &experts.clone().load_mode(mode));
        s.prefill(&[1, 2, 3]).expect("a prompt");
        let mut logits = vec![0.0; s.facts().vocab as usize];
        s.logits(&mut logits).expect("logits");
        logits
    });
    assert_eq!(mapped, read);
    assert!(read.iter().any(|logit| *logit != 0.0));
}

/// The tokenizer of a compiled model stays in the file, also on a GPU.
fn truncated_for_gpu() {
    catch_file_faults().expect("a handler");
    let folder = Folder::new("gpu");
    let (path, compiled) = (model(&folder), folder.0.join("model.tabla"));
    let on_gpu = options(LoadMode::Read).device(DeviceChoice::Gpu);
    compile(&path, &compiled, &[DeviceChoice::Gpu], &on_gpu);
    let mut s = session(&compiled, &on_gpu);
    truncate(&compiled, 4096);
    let error = tokens(&mut s).expect_err("the tokenizer is lost");
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
}

const CASES: [(&str, fn()); 9] = [
    ("truncated", truncated),
    ("truncated_while_loading", truncated_while_loading),
    ("truncated_uncaught", truncated_uncaught),
    ("other_fault", other_fault),
    ("replaced", replaced),
    ("overwritten", overwritten),
    ("read", read),
    ("read_for_gpu", read_for_gpu),
    ("truncated_for_gpu", truncated_for_gpu),
];

/// Runs a case in a process of its own.
fn run(case: &str) -> (ExitStatus, String) {
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "file_changes::child", "--nocapture"])
        .env(CASE, case)
        .output()
        .expect("a process");
    (
        child.status,
        String::from_utf8_lossy(&child.stderr).into_owned(),
    )
}

/// The child processes of the other tests.
#[test]
fn child() {
    let case = std::env::var(CASE).unwrap_or_default();
    if let Some((_, run)) = CASES.iter().find(|(name, _)| *name == case) {
        run();
    }
}

#[test]
fn changed_files_are_errors() {
    let on_gpu = ["read_for_gpu", "truncated_for_gpu"];
    let on_gpu = on_gpu.into_iter().filter(|_| has_gpu());
    let on_cpu = [
        "truncated",
        "truncated_while_loading",
        "replaced",
        "overwritten",
        "read",
    ];
    for case in on_cpu.into_iter().chain(on_gpu) {
        let (status, output) = run(case);
        assert!(status.success(), "{case}: {status}\n{output}");
    }
}

/// What the handler prevents, and that it passes on what is not a fault of a model file.
#[test]
fn other_faults_end_the_process() {
    for case in ["truncated_uncaught", "other_fault"] {
        let (status, output) = run(case);
        assert_eq!(status.signal(), Some(SIGBUS), "{case}: {output}");
    }
}
