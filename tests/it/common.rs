//! Shared test helpers: golden files, devices, sessions.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tabla::device::{AdapterFacts, GpuFeatures, Precision, Replay};
use tabla::dtype::DType;
use tabla::exec::cpu::Level;
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::tools::{ExportOptions, QUANT_MIXES, QuantizeOptions, quantize};
use tabla::{GenerateOptions, Model, Sampling, Session, Source};

/// Returns the path `tests/golden/<name>`.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// Reports a skipped test on stderr, bypassing the output capture of the test runner.
pub(crate) fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr().lock(), "SKIPPED: {reason}");
}

/// Prints a measurement; with `-- --nocapture` it appears next to its test.
pub(crate) fn print(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Returns a path in the folder of real models, `TABLA_TESTDATA`; `None` if it is not set.
pub(crate) fn testdata(path: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("TABLA_TESTDATA") else {
        skip(&format!(
            "{path}: TABLA_TESTDATA is not set to a folder of real models"
        ));
        return None;
    };
    let path = Path::new(&folder).join(path);
    assert!(
        path.exists(),
        "{}: no such file in TABLA_TESTDATA",
        path.display()
    );
    Some(path)
}

/// Returns a path in the folder `models` of llama.cpp's source, `TABLA_LLAMA_CPP`; `None` if it is not set.
pub(crate) fn llama_cpp(path: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("TABLA_LLAMA_CPP") else {
        skip(&format!(
            "{path}: TABLA_LLAMA_CPP is not set to the folder models of llama.cpp"
        ));
        return None;
    };
    Some(Path::new(&folder).join(path))
}

/// Returns a path in the folder of real speech models, `TABLA_SPEECH`; `None` if it is not set.
pub(crate) fn speech_model(path: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("TABLA_SPEECH") else {
        skip(&format!(
            "{path}: TABLA_SPEECH is not set to a folder of real speech models"
        ));
        return None;
    };
    let path = Path::new(&folder).join(path);
    assert!(
        path.exists(),
        "{}: no such file in TABLA_SPEECH",
        path.display()
    );
    Some(path)
}

/// Returns the devices to test: each instruction set level of this CPU, and a GPU or a software
/// adapter. Exhaustive runs add the GPU without optional features and with encoded replay, which
/// `gpu::` tests always run.
pub(crate) fn devices(precision: Precision) -> Vec<(String, LoadOptions)> {
    let mut all: Vec<_> = Level::available()
        .into_iter()
        .map(|level| {
            let device = DeviceChoice::Cpu;
            let options = LoadOptions::default()
                .device(device)
                .level(level)
                .precision(precision);
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
            let options = LoadOptions::default()
                .device(device)
                .gpu_features(gpu_features)
                .replay(replay)
                .precision(precision);
            all.push((format!("gpu, {gpu_features:?}"), options));
        }
    }
    all
}

/// Returns the devices to test a model on. A software GPU runs only the models of `on_gpu`, except in exhaustive runs:
/// `gpu::` tests every operation, and `tables::` every command of every architecture.
pub(crate) fn devices_for(
    model: &str,
    on_gpu: &[&str],
    precision: Precision,
) -> Vec<(String, LoadOptions)> {
    let mut all = devices(precision);
    let is_on_gpu = on_gpu.contains(&model) || !is_gpu_slow();
    all.retain(|(_, options)| is_on_gpu || options.device == DeviceChoice::Cpu);
    all
}

/// Returns the devices without a software GPU, for tests of code that is the same for all devices.
pub(crate) fn fast_devices(precision: Precision) -> Vec<(String, LoadOptions)> {
    devices_for("", &[], precision)
}

/// Returns whether tests on the GPU repeat less: it is a software GPU, which needs as long for a pass of one token as
/// for a full one, and the run is not exhaustive.
pub(crate) fn is_gpu_slow() -> bool {
    !exhaustive() && gpus().iter().all(|gpu| gpu.kind == "software")
}

/// Returns the adapters, which are listed once.
fn gpus() -> &'static [AdapterFacts] {
    static GPUS: LazyLock<Vec<AdapterFacts>> =
        LazyLock::new(|| tabla::load::devices().expect("lists devices").gpus);
    &GPUS
}

/// Returns whether there is a GPU. Panics if there is none and `TABLA_REQUIRE_GPU=1` is set.
pub(crate) fn has_gpu() -> bool {
    let has_gpu = !gpus().is_empty();
    let required = std::env::var_os("TABLA_REQUIRE_GPU").is_some_and(|v| v == "1");
    assert!(
        has_gpu || !required,
        "TABLA_REQUIRE_GPU=1, but no adapter was found"
    );
    if !has_gpu {
        skip("GPU tests: no adapter was found");
    }
    has_gpu
}

/// Returns options for the GPU with each replay mode it supports; empty without a GPU.
pub(crate) fn replays() -> Vec<LoadOptions> {
    if !has_gpu() {
        return vec![];
    }
    let with = |replay| {
        LoadOptions::default()
            .device(DeviceChoice::Gpu)
            .replay(replay)
    };
    let mut all = vec![with(Replay::Encoded)];
    // The selected adapter may differ from the first, but has the same backend.
    if gpus()[0].backend == "vulkan" {
        all.push(with(Replay::Recorded));
    }
    all
}

/// Loads a file and creates a session.
pub(crate) fn session(path: &Path, options: &LoadOptions) -> Session {
    let source = Source::Path(path.to_path_buf());
    Session::new(
        Model::builder(source)
            .options(options.clone())
            .load()
            .expect("the model loads"),
    )
}

/// Creates a session of the built-in model on the CPU.
pub(crate) fn story(options: LoadOptions) -> Session {
    let options = options.device(DeviceChoice::Cpu);
    Session::new(
        Model::builder(Source::BuiltIn)
            .options(options)
            .load()
            .expect("the model loads"),
    )
}

/// Generates tokens after `prompt` and returns their ids.
pub(crate) fn picks(session: &mut Session, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    session.reset();
    session.prefill(prompt).expect("the prompt fits");
    session
        .generate_with(options, |_| ControlFlow::Continue(()))
        .expect("generation succeeds");
    session.tokens()[prompt.len()..].to_vec()
}

/// Returns options for greedy decoding of `max_tokens` tokens, ignoring stop tokens.
pub(crate) fn greedy(max_tokens: u32) -> GenerateOptions {
    GenerateOptions::default()
        .sampling(Sampling::GREEDY)
        .max_tokens(max_tokens)
        .ignore_eos(true)
}

/// Returns the index and the value of the largest difference of two rows.
pub(crate) fn worst(a: &[f32], b: &[f32]) -> (usize, f32) {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs()).enumerate();
    differences
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or_default()
}

/// Returns the index of the first largest value.
pub(crate) fn argmax(row: &[f32]) -> usize {
    let mut best = 0;
    for (i, x) in row.iter().enumerate() {
        if *x > row[best] {
            best = i;
        }
    }
    best
}

/// Returns whether to run full test matrices (`cargo xtask exhaustive`). Otherwise tests run a subset
/// that covers every operation, kernel and architecture once.
pub(crate) fn exhaustive() -> bool {
    std::env::var_os("TABLA_EXHAUSTIVE").is_some_and(|v| v == "1")
}

/// Converts a model to GGUF or ggml, with the types of a mix.
pub(crate) fn convert(from: &Path, to: &Path, mix: Option<&str>) -> tabla::Result<()> {
    let mix = mix.map(|name| {
        QUANT_MIXES
            .iter()
            .find(|mix| mix.name == name)
            .expect("a mix")
    });
    let options = QuantizeOptions::default().mix(mix).threads(1);
    let mut go_on = |_, _| ControlFlow::Continue(());
    quantize(&Source::from(from), to, &options, &mut go_on).map(drop)
}

/// Writes a model as a folder of Hugging Face. Returns the notes.
pub(crate) fn export(from: &Path, to: &Path, dtype: Option<DType>) -> Vec<String> {
    let options = ExportOptions::default().dtype(dtype).threads(1);
    let mut go_on = |_, _| ControlFlow::Continue(());
    let report = tabla::tools::export(&Source::from(from), to, &options, &mut go_on);
    report
        .unwrap_or_else(|e| panic!("{}: {e}", to.display()))
        .notes
}

/// Reads a JSON file.
pub(crate) fn json_file(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).expect("a file");
    serde_json::from_str(&text).expect("valid JSON")
}
