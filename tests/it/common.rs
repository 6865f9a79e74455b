//! What tests share: golden files, devices, sessions.

use std::io::Write;
use std::path::{Path, PathBuf};
use tabla::exec::cpu::Level;
use tabla::{
    DeviceChoice, GenerateOptions, GpuFeatures, LoadOptions, Precision, Replay, Sampling, Session,
    Source,
};

/// `tests/golden/<name>`.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// Says what is not tested, past the capture of the test runner.
pub(crate) fn skip(what: &str) {
    let _ = writeln!(std::io::stderr().lock(), "SKIPPED: {what}");
}

/// Says what was measured; `-- --nocapture` has it in its place among the results.
pub(crate) fn print(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// The real models, where `TABLA_TESTDATA` names their folder.
pub(crate) fn testdata(path: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("TABLA_TESTDATA") else {
        skip(&format!(
            "{path}: TABLA_TESTDATA names no folder of real models"
        ));
        return None;
    };
    let path = Path::new(&folder).join(path);
    assert!(path.exists(), "TABLA_TESTDATA lacks {}", path.display());
    Some(path)
}

/// Every device that tests run on: each level of this CPU, then a GPU, be it a software one; in an
/// exhaustive run once more with no optional feature and encoded replay, which `gpu::` tests run always.
pub(crate) fn devices(precision: Precision) -> Vec<(String, LoadOptions)> {
    let mut all: Vec<_> = Level::available()
        .into_iter()
        .map(|level| {
            let device = DeviceChoice::Cpu;
            let options = LoadOptions {
                device,
                level: Some(level),
                precision,
                ..LoadOptions::default()
            };
            (format!("cpu {level:?}"), options)
        })
        .collect();
    if has_gpu() {
        let device = DeviceChoice::Gpu;
        let both = [
            (GpuFeatures::All, Replay::Auto),
            (GpuFeatures::Baseline, Replay::Encoded),
        ];
        let count = if exhaustive() { 2 } else { 1 };
        for (gpu_features, replay) in both.into_iter().take(count) {
            let options = LoadOptions {
                device,
                gpu_features,
                replay,
                precision,
                ..LoadOptions::default()
            };
            all.push((format!("gpu, {gpu_features:?}"), options));
        }
    }
    all
}

/// Whether there is a GPU; with `TABLA_REQUIRE_GPU=1` it is a failure if not.
pub(crate) fn has_gpu() -> bool {
    let found = !tabla::devices().expect("a CPU").gpus.is_empty();
    let required = std::env::var_os("TABLA_REQUIRE_GPU").is_some_and(|v| v == "1");
    assert!(
        found || !required,
        "TABLA_REQUIRE_GPU=1, and no adapter was found"
    );
    if !found {
        skip("the GPU's share: no adapter was found");
    }
    found
}

/// The GPU with each way of replaying that it has; nothing where there is none.
pub(crate) fn replays() -> Vec<LoadOptions> {
    if !has_gpu() {
        return vec![];
    }
    let with = |replay| LoadOptions {
        device: DeviceChoice::Gpu,
        replay,
        ..LoadOptions::default()
    };
    let mut all = vec![with(Replay::Encoded)];
    // The adapter that is taken may be another than the first, but not of another back end.
    if tabla::devices().expect("a CPU").gpus[0].backend == "vulkan" {
        all.push(with(Replay::Recorded));
    }
    all
}

/// A session of a file.
pub(crate) fn session(path: &Path, options: &LoadOptions) -> Session {
    let source = Source::Path(path.to_path_buf());
    Session::new(tabla::load(&source, options, &mut |_| {}).expect("the model loads"))
}

/// A session of the built-in model on the CPU.
pub(crate) fn story(options: LoadOptions) -> Session {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        ..options
    };
    Session::new(tabla::load(&Source::BuiltIn, &options, &mut |_| {}).expect("the model loads"))
}

/// The ids that a session picks after `prompt`.
pub(crate) fn picks(session: &mut Session, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    session.reset();
    session
        .prefill(prompt, &mut |_, _| {})
        .expect("the prompt fits");
    session
        .generate(options, &mut |_| tabla::Flow::Continue)
        .expect("it generates");
    session.tokens()[prompt.len()..].to_vec()
}

/// The likeliest token, `max_tokens` times, whatever it is.
pub(crate) fn greedy(max_tokens: u32) -> GenerateOptions {
    GenerateOptions {
        sampling: Sampling::GREEDY,
        max_tokens,
        ignore_stops: true,
        ..GenerateOptions::default()
    }
}

/// The greatest difference of two rows, and where it is.
pub(crate) fn worst(a: &[f32], b: &[f32]) -> (usize, f32) {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs()).enumerate();
    differences
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or_default()
}

/// The index of the largest number, the first among equals.
pub(crate) fn argmax(row: &[f32]) -> usize {
    let mut best = 0;
    for (i, x) in row.iter().enumerate() {
        if *x > row[best] {
            best = i;
        }
    }
    best
}

/// Whether matrices of tests run whole, as `cargo xtask exhaustive` asks; otherwise they run a part
/// that has every operation, every kernel and every family once.
pub(crate) fn exhaustive() -> bool {
    std::env::var_os("TABLA_EXHAUSTIVE").is_some_and(|v| v == "1")
}
