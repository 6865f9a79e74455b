//! Faults of a GPU other than its loss: no memory, and pipelines that cannot be created. Cases that limit a process run
//! in a process of their own.

use super::recovery::prompted;
use crate::common::{greedy, replays};
use std::path::Path;
use std::process::Command;
use tabla::load::LoadOptions;
use tabla::{ErrorKind, HookSpec, Model, Result, Session, Source};

/// Names the case that a child process runs.
const CASE: &str = "TABLA_TEST_GPU_FAULT";
/// Written by a case at its end.
const DONE: &str = "the case has passed";

fn load(options: &LoadOptions) -> Result<Model> {
    Model::builder(Source::BuiltIn)
        .options(options.clone())
        .load()
}

fn tokens(session: &mut Session) -> Result<Vec<u32>> {
    let pieces = session.generate(&greedy(24))?;
    pieces.map(|piece| Ok(piece?.token)).collect()
}

/// Limits the address space of this process to `more` bytes than it has; all the memory of a software GPU is in it.
fn limit_memory(more: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let limit = format!("--as={}:", pages * 4096 + more);
    let pid = format!("--pid={}", std::process::id());
    let status = Command::new("prlimit").args([pid, limit]).status();
    assert!(status.expect("prlimit of util-linux").success());
}

/// Memory that is missing while loading, and while hooks are added to a model, which can be used as before.
fn out_of_memory(options: &LoadOptions) {
    let options = options.clone().max_context(4096).chunk_tokens(512);
    let model = load(&options).unwrap();
    let expected = tokens(&mut prompted(&model)).unwrap();
    // A buffer of keys has 128 MB; the compiler of the driver needs some MB.
    limit_memory(96 << 20);
    let error = load(&options.sequences(250)).expect_err("no memory");
    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
    assert!(error.message().contains("allocating"), "{error}");
    // The weights of two layers have 100 MB.
    limit_memory(40 << 20);
    let weights = HookSpec::default().capture(
        (0..2)
            .map(|n| format!("blk.{n}.attn_weights"))
            .collect::<Vec<_>>(),
    );
    let error = model.hooks(&weights).expect_err("no memory");
    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
    assert_eq!(tokens(&mut prompted(&model)).unwrap(), expected);
}

/// Replaces a part of a shader in a folder of custom shaders.
fn custom(folder: &Path, from: &str, to: &str) {
    let source = include_str!("../../../shaders/advance.wgsl");
    assert!(source.contains(from));
    std::fs::write(folder.join("advance.wgsl"), source.replace(from, to)).unwrap();
}

#[test]
fn a_pipeline_that_cannot_be_created_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    // Valid WGSL, with a buffer that the layout of the pipeline does not have.
    let (from, to) = ("let live =", "other[lane] = lane; let live =");
    custom(folder.path(), from, to);
    let path = folder.path().join("advance.wgsl");
    let text = std::fs::read_to_string(&path).unwrap();
    let other = "\n@group(0) @binding(7) var<storage, read_write> other: array<u32>;\n@compute";
    std::fs::write(&path, text.replace("\n@compute", other)).unwrap();
    for options in replays() {
        let options = options.shader_path(folder.path().to_path_buf());
        let error = load(&options).expect_err("a pipeline without a layout");
        assert_eq!(error.kind(), ErrorKind::Device, "{error}");
        assert!(error.message().contains("kernel advance"), "{error}");
    }
}

type Case = fn(&LoadOptions);
const CASES: [(&str, Case); 1] = [("out_of_memory", out_of_memory)];

/// The child processes of the other tests.
#[test]
fn child() {
    let case = std::env::var(CASE).unwrap_or_default();
    let Some((name, at)) = case.split_once(' ') else {
        return;
    };
    let (_, run) = CASES.iter().find(|(known, _)| *known == name).unwrap();
    let at: usize = at.parse().unwrap();
    run(&replays()[at]);
    crate::common::print(DONE);
}

#[test]
fn missing_memory_is_an_error() {
    for (case, _) in CASES {
        for at in 0..replays().len() {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "gpu::faults::child", "--nocapture"])
                .env(CASE, format!("{case} {at}"))
                // Each further heap of a thread would reserve 64 MB.
                .env("MALLOC_ARENA_MAX", "1")
                .output()
                .unwrap();
            let [out, log] = [child.stdout, child.stderr].map(|text| {
                let text = String::from_utf8_lossy(&text);
                text.into_owned()
            });
            assert!(out.contains(DONE), "{case} {at}: {out}\n{log}");
        }
    }
}
