//! Tests of `tabla quantize`: output, report and errors.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};
use tabla::dtype::DType;
use tabla::format::write::Writer;
use tabla::format::{Directory, open};
use tabla::quant;
use tempfile::TempDir;

/// Columns and rows of the matrices: a multiple of every block size.
const SIDE: u64 = 512;
const LAYERS: u32 = 8;

/// A temporary folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = TempDir::with_prefix(format!("tabla-quantize-{name}-"));
        Self(folder.expect("a temporary folder").keep())
    }

    fn path(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.into_os_string().into_string().expect("UTF-8 path")
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.join(name), bytes).expect("writable folder");
        self.path(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("existing folder");
        let name = |e: std::fs::DirEntry| e.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(|e| name(e.expect("an entry"))).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed remains in the build folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tabla"))
        .arg("quantize")
        .args(args)
        .output()
        .expect("program starts")
}

/// Returns the report of a successful run.
fn report(args: &[&str]) -> Value {
    let ran = run(&[args, &["--json"]].concat());
    let output = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{output}");
    serde_json::from_slice(&ran.stdout).expect("valid JSON")
}

/// Returns the error output of a failed run.
fn error_of(args: &[&str]) -> String {
    let ran = run(args);
    assert!(!ran.status.success(), "{args:?} succeeds");
    String::from_utf8(ran.stderr).expect("UTF-8")
}

/// Returns pseudo-random numbers with the distribution of weights.
fn numbers(seed: u32, count: u64) -> Vec<f32> {
    let mut state = seed;
    let mut number = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let even = (state >> 8) as f32 / 16_777_216.0 - 0.5;
        even * even * even
    };
    (0..count).map(&mut number).collect()
}

fn f32s(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A model with matrices only, which no architecture uses, to keep it small.
fn model<'a>(
    writer: &'a mut Writer<'static>,
    layers: std::ops::Range<u32>,
) -> &'a mut Writer<'static> {
    let mut matrix = |name: &str, seed| {
        let data = f32s(&numbers(seed, SIDE * 4));
        writer.tensor(name, DType::F32, &[SIDE, 4], data);
    };
    for layer in layers {
        for (n, name) in (1..).zip(["attn_q", "attn_v", "ffn_down"]) {
            matrix(&format!("blk.{layer}.{name}.weight"), 10 * layer + n);
        }
    }
    writer
}

fn metadata(writer: &mut Writer<'static>) {
    writer
        .set("general.architecture", "llama")
        .set("general.file_type", 0u32)
        .set("llama.block_count", LAYERS)
        .set("llama.attention.head_count", 8u32)
        .list("tokenizer.ggml.tokens", &["a", "b", "c", "d"]);
}

/// Returns the model in one file.
fn whole() -> Vec<u8> {
    let mut writer = Writer::new();
    metadata(&mut writer);
    model(&mut writer, 0..LAYERS);
    writer
        .tensor(
            "token_embd.weight",
            DType::F32,
            &[SIDE, 4],
            f32s(&numbers(99, SIDE * 4)),
        )
        .tensor(
            "output_norm.weight",
            DType::F32,
            &[SIDE],
            f32s(&numbers(98, SIDE)),
        );
    writer.finish().expect("valid file")
}

fn types(file: &Directory, part: &str) -> Vec<&'static str> {
    let tensors = file.tensors.iter().filter(|t| t.name.contains(part));
    tensors.map(|t| t.dtype.name()).collect()
}

fn decoded(file: &Directory, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).expect(name);
    let dtype = tensor.dtype.known().expect("a known type");
    let mut row = vec![0.0; usize::try_from(tensor.elements()).expect("fits usize")];
    quant::decode_row(dtype, file.bytes(tensor), &mut row);
    row
}

#[test]
fn quantization_types_match_llama_cpp() {
    let folder = Folder::new("mix");
    let (from, to) = (folder.write("in.gguf", whole()), folder.path("out.gguf"));
    let report = report(&[&from, &to, "q4_k_m"]);
    let file = open(to.as_ref()).expect("valid file");
    let metadata = &file.metadata;
    assert_eq!(metadata.u32("general.file_type").unwrap(), Some(15));
    assert_eq!(
        metadata.u32("general.quantization_version").unwrap(),
        Some(2)
    );
    assert_eq!(
        metadata
            .strs("tokenizer.ggml.tokens")
            .unwrap()
            .unwrap()
            .len(),
        4
    );
    assert_eq!(
        types(&file, "token_embd"),
        ["q6_k"],
        "it is the output projection too"
    );
    assert_eq!(types(&file, "output_norm"), ["f32"]);
    assert_eq!(types(&file, "attn_q"), ["q4_k"; 8]);
    let spread = [
        "q6_k", "q4_k", "q4_k", "q6_k", "q4_k", "q4_k", "q6_k", "q6_k",
    ];
    assert_eq!(types(&file, "attn_v"), spread);
    assert_eq!(types(&file, "ffn_down"), spread);

    // The reported error is the error of the file.
    let before = open(from.as_ref()).expect("valid file");
    for tensor in report["tensors"].as_array().expect("an array") {
        let name = tensor["name"].as_str().expect("a name");
        let (x, y) = (decoded(&before, name), decoded(&file, name));
        let sum = |v: &mut dyn Iterator<Item = f32>| v.map(|x| f64::from(x).powi(2)).sum::<f64>();
        let error = sum(&mut x.iter().zip(&y).map(|(x, y)| x - y));
        let actual = (error / sum(&mut x.iter().copied())).sqrt();
        let stated = tensor["error"].as_f64().expect("a number");
        assert!((actual - stated).abs() < 1e-6, "{name}: {actual} {stated}");
        assert!(stated < 0.09, "{name}: {stated}");
    }
    assert_eq!(folder.names(), ["in.gguf", "out.gguf"]);
}

#[test]
fn output_does_not_depend_on_threads() {
    let folder = Folder::new("threads");
    let from = folder.write("in.gguf", whole());
    let outs = ["1", "3"].map(|threads| {
        let to = folder.path(threads);
        report(&[&from, &to, "Q3_K_L", "--threads", threads]);
        std::fs::read(to).expect("existing file")
    });
    assert!(outs[0] == outs[1], "the files differ");
}

#[test]
fn overrides_types_by_name() {
    let folder = Folder::new("names");
    let (from, to) = (folder.write("in.gguf", whole()), folder.path("out.gguf"));
    let choices = [
        "--tensor-type",
        r"blk\.[01]\.attn_v=q8_0",
        "--tensor-type",
        "attn_=iq4_nl",
    ];
    let embedding = ["--token-embedding-type", "Q5_1"];
    report(&[&[&from, &to, "TQ2_0"], &choices[..], &embedding].concat());
    let file = open(to.as_ref()).expect("valid file");
    assert_eq!(types(&file, "blk.0"), ["iq4_nl", "q8_0", "tq2_0"]);
    assert_eq!(types(&file, "blk.2"), ["iq4_nl", "iq4_nl", "tq2_0"]);
    assert_eq!(types(&file, "token_embd"), ["q5_1"]);
}

#[test]
fn writes_every_quantization() {
    let folder = Folder::new("all");
    let from = folder.write("in.gguf", whole());
    for mix in tabla::tools::QUANT_MIXES {
        let to = folder.path(mix.name);
        let report = report(&[&from, &to, mix.name]);
        let file = open(to.as_ref()).expect(mix.name);
        assert_eq!(file.tensors.len(), 26, "{}", mix.name);
        assert_eq!(report["mix"], mix.name);
    }
}

#[test]
fn ternary_tensors_are_lossless() {
    let folder = Folder::new("ternary");
    let digits: Vec<f32> = numbers(5, SIDE * 4)
        .iter()
        .map(|x| x.signum() * 0.25)
        .collect();
    let name = "blk.0.ffn_up.weight";
    let file = Writer::new()
        .tensor(name, DType::F32, &[SIDE, 4], f32s(&digits))
        .finish();
    let from = folder.write("in.gguf", file.expect("valid file"));
    for mix in ["TQ1_0", "TQ2_0", "I2_S", "Q1_0", "Q2_0"] {
        let to = folder.path(mix);
        assert_eq!(report(&[&from, &to, mix])["tensors"][0]["error"], 0.0);
        assert!(
            decoded(&open(to.as_ref()).expect(mix), name) == digits,
            "{mix}"
        );
    }
}

#[test]
fn uses_another_type_for_unsupported_row_sizes() {
    let folder = Folder::new("narrow");
    let file = Writer::new()
        .tensor(
            "blk.0.ffn_up.weight",
            DType::F32,
            &[96, 2],
            f32s(&numbers(1, 192)),
        )
        .tensor(
            "blk.0.ffn_gate.weight",
            DType::F32,
            &[40, 2],
            f32s(&numbers(2, 80)),
        )
        .finish();
    let from = folder.write("in.gguf", file.expect("valid file"));
    let to = folder.path("out.gguf");
    let ran = run(&[&from, &to, "Q4_K_S"]);
    let output = String::from_utf8(ran.stdout).expect("UTF-8");
    assert!(output.contains("f32 -> q5_0"), "{output}");
    assert!(
        output.contains("(q4_k is not supported for this row size)"),
        "{output}"
    );
    assert_eq!(
        types(&open(to.as_ref()).expect("valid file"), "blk"),
        ["q5_0", "f16"]
    );
}

#[test]
fn importance_matrix_lowers_the_weighted_error() {
    let folder = Folder::new("importance");
    let from = folder.write("in.gguf", whole());
    let important = |i: u64| if i.is_multiple_of(16) { 1.0 } else { 1e-3 };
    let weights: Vec<f32> = (0..SIDE).map(important).collect();
    let mut writer = Writer::new();
    let sums = weights.iter().map(|w| w * 8.0).collect::<Vec<_>>();
    writer
        .tensor(
            "blk.0.attn_q.weight.in_sum2",
            DType::F32,
            &[SIDE, 1],
            f32s(&sums),
        )
        .tensor(
            "blk.0.attn_q.weight.counts",
            DType::F32,
            &[1, 1],
            f32s(&[8.0]),
        );
    let imatrix = folder.write("imatrix.gguf", writer.finish().expect("valid file"));
    let plain = folder.path("plain.gguf");
    let weighted = folder.path("weighted.gguf");
    report(&[&from, &plain, "Q2_K"]);
    let report = report(&[&from, &weighted, "Q2_K", "--imatrix", &imatrix]);
    let tensors: Vec<_> = report["tensors"]
        .as_array()
        .expect("an array")
        .iter()
        .collect();
    assert_eq!(tensors[0]["weighted"], true);
    assert_eq!(tensors[1]["weighted"], false);
    let name = "blk.0.attn_q.weight";
    let x = decoded(&open(from.as_ref()).expect("valid file"), name);
    let error = |path: &str| {
        let y = decoded(&open(path.as_ref()).expect("valid file"), name);
        let errors = x.iter().zip(&y).zip(weights.iter().cycle());
        errors.map(|((x, y), w)| (x - y) * (x - y) * w).sum::<f32>()
    };
    assert!(error(&weighted) < 0.7 * error(&plain));

    let narrow = Writer::new()
        .tensor(
            "blk.0.attn_q.weight.in_sum2",
            DType::F32,
            &[8, 1],
            f32s(&[1.0; 8]),
        )
        .tensor(
            "blk.0.attn_q.weight.counts",
            DType::F32,
            &[1, 1],
            f32s(&[8.0]),
        )
        .finish();
    let narrow = folder.write("narrow.gguf", narrow.expect("valid file"));
    let error = error_of(&[&from, &plain, "Q2_K", "--force", "--imatrix", &narrow]);
    assert!(
        error.contains("expected importance of 512 columns, got 8"),
        "{error}"
    );
}

#[test]
fn merges_split_files() {
    let folder = Folder::new("set");
    for (no, layers) in [(0, 0..4), (1, 4..LAYERS)] {
        let mut writer = Writer::new();
        if no == 0 {
            metadata(&mut writer);
        }
        writer
            .set("split.no", u16::try_from(no).expect("fits the type"))
            .set("split.count", 2u16)
            .set("split.tensors.count", 24i32);
        model(&mut writer, layers);
        let name = format!("m-{:05}-of-00002.gguf", no + 1);
        folder.write(&name, writer.finish().expect("valid file"));
    }
    let (from, to) = (
        folder.path("m-00002-of-00002.gguf"),
        folder.path("out.gguf"),
    );
    report(&[&from, &to, "Q8_0"]);
    let file = open(to.as_ref()).expect("valid file");
    assert_eq!(file.tensors.len(), 24);
    assert_eq!(file.paths().count(), 1);
    assert!(
        file.metadata.get("split.count").is_none(),
        "the output is not split"
    );
    let error = error_of(&[
        &from,
        &folder.path("m-00001-of-00002.gguf"),
        "Q8_0",
        "--force",
    ]);
    assert!(
        error.contains("output file is the same as an input file"),
        "{error}"
    );
}

#[test]
fn errors_keep_existing_files() {
    let folder = Folder::new("errors");
    let mut bad = numbers(1, SIDE * 4);
    bad[700] = f32::NAN;
    let mut huge = numbers(1, SIDE * 4);
    huge[5] = 1e30;
    let one = |data: &[f32]| {
        let mut writer = Writer::new();
        writer.tensor("blk.0.ffn_up.weight", DType::F32, &[SIDE, 4], f32s(data));
        writer.finish().expect("valid file")
    };
    let from = folder.write("in.gguf", whole());
    let nan = folder.write("nan.gguf", one(&bad));
    let huge = folder.write("huge.gguf", one(&huge));
    let old = folder.write("old.gguf", b"old content");
    let before = folder.names();
    let missing = folder.path("none/out.gguf");
    for (args, expected) in [
        (
            [&*nan, &old, "Q4_K_M"],
            "tensor blk.0.ffn_up.weight: row 1, column 188 is NaN",
        ),
        (
            [&huge, &old, "Q8_0"],
            "tensor blk.0.ffn_up.weight: row 0 has values too large for q8_0",
        ),
        (
            [&from, &from, "Q8_0"],
            "output file is the same as an input file",
        ),
        ([&from, &missing, "Q8_0"], "cannot be created"),
        ([&from, &folder.path("."), "Q8_0"], "a directory"),
        ([&from, &old, "Q9"], "expected one of F32, F16"),
        (
            [&old, &folder.path("out"), "Q8_0"],
            "a text file, not a model",
        ),
    ] {
        let error = error_of(&[&args[..], &["--force"]].concat());
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let error = error_of(&[
        &from,
        &old,
        "Q8_0",
        "--force",
        "--tensor-type",
        "attn=iq2_xxs",
    ]);
    assert!(
        error.contains("quantizing to iq2_xxs is not supported"),
        "{error}"
    );
    let error = error_of(&[&from, &old, "Q8_0", "--tensor-type", "attn"]);
    assert!(error.contains("expected PATTERN=TYPE"), "{error}");
    let error = error_of(&[&from, &old, "Q8_0"]);
    assert!(error.contains("exists: use --force"), "{error}");
    assert_eq!(folder.names(), before);
    assert_eq!(std::fs::read(old).expect("existing file"), b"old content");
}

/// Ctrl-C while a file is written: exit code 130 and no partial file.
#[cfg(unix)]
#[test]
fn ctrl_c_removes_the_partial_file() {
    use std::time::{Duration, Instant};

    let folder = Folder::new("interrupted");
    let mut writer = Writer::new();
    let rows = 16_384;
    let data = f32s(&numbers(3, SIDE * rows));
    writer.tensor("blk.0.ffn_up.weight", DType::F32, &[SIDE, rows], data);
    let from = folder.write("in.gguf", writer.finish().expect("valid file"));
    let to = folder.path("out.gguf");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tabla"))
        .args(["quantize", &from, &to, "Q2_K", "--threads", "1"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("program starts");
    let start = Instant::now();
    while folder.names().len() < 2 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.expect("kill runs").success());
    let status = child.wait().expect("program exits");
    assert_eq!(status.code(), Some(130));
    assert_eq!(folder.names(), ["in.gguf"]);
}

#[test]
fn quantizing_a_quantized_model_prints_a_warning() {
    let folder = Folder::new("twice");
    let from = folder.write("in.gguf", whole());
    let once = folder.path("once.gguf");
    let run = |args: &[&str]| {
        let ran = run(args);
        assert!(ran.status.success());
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    assert_eq!(run(&[&from, &once, "Q8_0"]), "");
    let warning = run(&[&once, &folder.path("twice.gguf"), "Q4_0"]);
    assert!(
        warning.contains("warning: once.gguf is already quantized, mostly to q8_0"),
        "{warning}"
    );
}
