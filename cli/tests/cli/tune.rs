//! Tests of `tabla tune`, and of commands that use its results.

use super::{Ran, program, ran, tabla};
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;

/// A temporary cache folder.
struct Caches(TempDir);

impl Caches {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn tabla(&self, args: &[&str]) -> Ran {
        let mut program = program(args);
        let program = program
            .env("XDG_CACHE_HOME", self.0.path())
            .stdin(Stdio::null());
        ran(program.output().expect("program starts"))
    }
}

/// A small model, because a software GPU takes a minute per measurement of the story model. Products of quantized weights have
/// several kernels.
const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/golden/quant_q8_0.gguf"
);

#[test]
fn commands_use_the_stored_tuning() {
    let devices = tabla(&["devices", "--json"]).json();
    let gpus = devices["gpus"].as_array().map_or(0, Vec::len);
    if gpus == 0 {
        assert!(std::env::var_os("TABLA_REQUIRE_GPU").is_none());
        return;
    }
    let caches = Caches::new();
    let gpu = ["-m", MODEL, "--device", "gpu", "-c", "32"];
    let run = |command: &[&str], more: &[&str]| {
        let args: Vec<&str> = [command, &gpu, more]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        caches.tabla(&args)
    };
    let unsaved = run(&["tune"], &["--json", "--no-tuning"]).json();
    assert!(unsaved["tuning"].is_null(), "{unsaved}");
    let story = &["-p", "Once", "-n", "4", "--temp", "0"][..];
    assert!(run(&["run", "--json"], story).json()["tuning"].is_null());

    let tuned = run(&["tune"], &[]);
    assert!(tuned.text().contains("taken | gain |") && tuned.text().contains("gemv_q8_0"));
    assert!(tuned.stderr.contains("saved to "), "{}", tuned.stderr);
    assert!(
        tuned.stderr.contains("the weights are small"),
        "{}",
        tuned.stderr
    );
    let folder = caches.0.path().join("tabla").join("tunings");
    let mut files = folder.read_dir().expect("existing folder");
    let file = files.next().expect("one file").expect("a folder").path();
    assert!(files.next().is_none());
    let shown = file.to_str().expect("UTF-8 path");

    assert_eq!(run(&["run", "--json"], story).json()["tuning"], shown);
    let verbose = run(&["run", "-v"], story).stderr;
    assert!(verbose.contains(&format!("tuning    {shown}")), "{verbose}");
    let untuned = run(&["run", "--json", "--no-tuning"], story);
    assert!(untuned.json()["tuning"].is_null());
    assert!(!untuned.stderr.contains("tuning"), "{}", untuned.stderr);
    let bench = [
        "bench", "-m", MODEL, "--device", "gpu", "-p", "0", "-n", "2", "-r", "1", "--format",
        "json",
    ];
    let bench = caches.tabla(&bench);
    assert_eq!(bench.json()[0]["tuning"], shown);
    assert!(
        bench.stderr.contains(&format!("tuning: {shown}")),
        "{}",
        bench.stderr
    );

    std::fs::write(&file, "{\"build\":").expect("writable folder");
    let damaged = run(&["run", "--json"], story);
    assert!(damaged.json()["tuning"].is_null());
    assert!(
        damaged
            .stderr
            .contains(&format!("tuning ignored: {shown}: ")),
        "{}",
        damaged.stderr
    );
    assert_eq!(run(&["run", "-q"], story).stderr, "");
}

#[test]
fn gpu_reports_upload_and_caches_kernels() {
    let devices = tabla(&["devices", "--json"]).json();
    let Some(gpu) = devices["gpus"].as_array().and_then(|gpus| gpus.first()) else {
        assert!(std::env::var_os("TABLA_REQUIRE_GPU").is_none());
        return;
    };
    let caches = Caches::new();
    let run = ["run", "--device", "gpu", "--json", "-c", "32", "-n", "2"];
    let verbose = [
        "run",
        "--device",
        "gpu",
        "-v",
        "-c",
        "32",
        "-n",
        "1",
        "--gpu-features",
        "all",
    ];
    let verbose = caches.tabla(&verbose).stderr;
    assert!(verbose.contains("kernels   "), "{verbose}");
    let upload = &caches.tabla(&run).json()["timings"]["upload"];
    let [bytes, ms] = ["bytes", "ms"].map(|key| upload[key].as_f64().unwrap_or_default());
    assert!(bytes > 1e6 && ms > 0.0, "{upload}");
    if gpu["backend"] == "vulkan" {
        let folder = caches.0.path().join("tabla").join("kernels");
        let mut files = folder.read_dir().expect("existing folder");
        let file = files.next().expect("one").expect("existing file").path();
        assert!(files.next().is_none());
        warns_of_damage(&caches, &run, &file);
    }
}

/// Checks that a damaged file is reported once and replaced.
fn warns_of_damage(caches: &Caches, run: &[&str], file: &Path) {
    let whole = std::fs::read(file).expect("output file");
    let damage = || std::fs::write(file, &whole[..whole.len() / 2]).expect("writable file");
    damage();
    let warned = caches.tabla(run);
    assert_eq!(
        warned.json()["timings"]["predicted_n"],
        2,
        "the run succeeds"
    );
    let start = format!(
        "warning: pipeline cache file ignored; path: {}; error: ",
        file.display()
    );
    let lines = warned.stderr.lines();
    let warnings: Vec<&str> = lines.filter(|line| line.starts_with("warning: ")).collect();
    assert_eq!(warnings.len(), 1, "{}", warned.stderr);
    assert!(warnings[0].starts_with(&start), "{}", warned.stderr);
    assert!(
        !caches.tabla(run).stderr.contains("warning"),
        "the file is replaced"
    );
    damage();
    assert_eq!(caches.tabla(&[run, &["-q"]].concat()).stderr, "");
}

#[test]
fn tune_rejects_the_cpu() {
    let ran = tabla(&["tune", "--device", "cpu"]);
    super::check_failure(&ran, "tuning requires a GPU");
}
