//! Tests of `tabla compile`, of the commands that read compiled models, and of `--cache`.

use super::{Ran, program, ran, tabla};
use std::fs;
use std::path::Path;
use std::process::Stdio;

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/golden/quant_q8_0.gguf"
);

/// Runs the program on the CPU with a cache folder of its own.
fn cached(folder: &Path, args: &[&str]) -> Ran {
    let mut program = program(args);
    let program = program.env("XDG_CACHE_HOME", folder).stdin(Stdio::null());
    ran(program.output().expect("program starts"))
}

/// Compiles the model to a file in a folder.
fn compiled(folder: &Path) -> String {
    let path = folder.join("model.tabla").to_string_lossy().into_owned();
    let ran = tabla(&["compile", MODEL, "-o", &path, "--target", "avx2,cpu,neon"]);
    assert!(ran.text().ends_with(", for CPUs\n"), "{}", ran.text());
    path
}

#[test]
fn commands_read_compiled_models() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let compiled = &compiled(folder.path());
    let run = |model: &str| {
        let device = ["--device", "cpu", "-q", "-s", "1"];
        tabla(&[&["run", "-m", model, "-p", "ab", "-n", "8"][..], &device].concat()).stdout
    };
    assert_eq!(run(compiled), run(MODEL));
    let table = |model: &str| tabla(&["table", model, "--which", "all", "--device", "cpu"]).stdout;
    assert_eq!(table(compiled), table(MODEL));
    let json = tabla(&["inspect", compiled, "--json", "--check"]).json();
    assert_eq!(json["compiled"]["source"], "quant_q8_0.gguf");
    assert_eq!(json["compiled"]["layouts"][0], "panels");
    assert_eq!(
        json["compiled"]["layouts"].as_array().map(Vec::len),
        Some(1)
    );
    let shown = tabla(&["show", compiled]);
    assert!(
        shown.text().contains("quantization   Q8_0"),
        "{}",
        shown.text()
    );
    let mut bytes = fs::read(compiled).expect("a file");
    let last = bytes.len() - 2000;
    bytes[last] ^= 1;
    fs::write(compiled, bytes).expect("a file");
    let damaged = tabla(&["inspect", compiled, "--check"]);
    assert_eq!(damaged.code, Some(1));
    assert!(damaged.stderr.contains("digest"), "{}", damaged.stderr);
}

#[test]
fn compile_rejects_what_it_cannot_write_or_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let compiled = &compiled(folder.path());
    let before = fs::read(compiled).expect("a file");
    let missing = folder.path().join("missing/model.tabla");
    let missing = missing.to_string_lossy();
    for (args, part) in [
        (
            ["compile", MODEL, "-o", compiled],
            "use --force to overwrite it",
        ),
        (["compile", "nothing.gguf", "-o", "x.tabla"], "no such file"),
        (["compile", MODEL, "-o", &missing], "missing/model.tabla"),
        (
            ["compile", compiled, "-o", "x.tabla"],
            "from which it was compiled",
        ),
    ] {
        let ran = tabla(&args);
        assert_eq!(ran.code, Some(1), "{args:?}");
        assert!(ran.stderr.contains(part), "{args:?}: {}", ran.stderr);
    }
    let own = tabla(&["compile", compiled, "-o", compiled, "--force"]);
    assert_eq!(own.code, Some(1));
    assert_eq!(
        fs::read(compiled).expect("a file"),
        before,
        "the file is unchanged"
    );
}

#[test]
fn cache_is_listed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = || cached(folder.path(), &["list", "--compiled", "--json"]).json();
    assert_eq!(list().as_array().map(Vec::len), Some(0));
    let run = [
        "run", "-m", MODEL, "-p", "ab", "-n", "8", "-q", "-s", "1", "--device", "cpu",
    ];
    let cached_run = [&run[..], &["--cache"]].concat();
    for _ in 0..2 {
        let ran = cached(folder.path(), &cached_run);
        assert_eq!(ran.stdout, tabla(&run).stdout, "{}", ran.stderr);
    }
    let listed = list();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    assert_eq!(listed[0]["name"], "quant_q8_0.gguf");
    assert_eq!(listed[0]["for"], "CPU");
}
