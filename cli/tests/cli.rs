//! Tests of the program: output, standard error and exit codes.

#[path = "cli/bench.rs"]
mod bench;
#[path = "cli/chat.rs"]
mod chat;
#[path = "cli/classify.rs"]
mod classify;
#[path = "cli/compile.rs"]
mod compile;
#[path = "cli/damaged_model.rs"]
mod damaged_model;
#[path = "cli/embed.rs"]
mod embed;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/llama_cpp.rs"]
mod llama_cpp;
#[path = "cli/not_finite.rs"]
mod not_finite;
#[path = "cli/perplexity.rs"]
mod perplexity;
#[path = "cli/rerank.rs"]
mod rerank;
#[path = "cli/rm.rs"]
mod rm;
#[path = "cli/speech_model.rs"]
mod speech_model;
#[path = "cli/structure.rs"]
mod structure;
#[path = "cli/text_files.rs"]
mod text_files;
#[path = "cli/trace.rs"]
mod trace;
#[path = "cli/transcribe.rs"]
mod transcribe;
#[path = "cli/tune.rs"]
mod tune;

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The output of a run.
struct Ran {
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: String,
}

impl Ran {
    fn text(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        std::str::from_utf8(&self.stdout).expect("standard output is UTF-8")
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.text()).expect("standard output is JSON")
    }
}

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tabla"));
    command
        .args(args)
        // Tunings of the user must not change results.
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn tabla(args: &[&str]) -> Ran {
    ran(program(args)
        .stdin(Stdio::null())
        .output()
        .expect("program starts"))
}

fn tabla_with_input(args: &[&str], input: &str) -> Ran {
    tabla_with_bytes(args, input.as_bytes())
}

fn tabla_with_bytes(args: &[&str], input: &[u8]) -> Ran {
    let mut child = program(args)
        .stdin(Stdio::piped())
        .spawn()
        .expect("program starts");
    let mut stdin = child.stdin.take().expect("piped stream");
    stdin.write_all(input).expect("open stdin");
    drop(stdin);
    ran(child.wait_with_output().expect("program exits"))
}

fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A file in a temporary folder.
struct Scratch {
    path: PathBuf,
    _folder: TempDir,
}

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self {
            path: folder.path().join(name),
            _folder: folder,
        }
    }

    fn with_bytes(name: &str, bytes: &[u8]) -> Self {
        let file = Self::new(name);
        std::fs::write(&file.path, bytes).expect("writable folder");
        file
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("UTF-8 path")
    }
}

const GREEDY: [&str; 6] = ["--device", "cpu", "--temp", "0", "-n", "24"];

#[test]
fn greedy_output_is_deterministic() {
    let run = || tabla(&GREEDY);
    let story = run();
    assert!(story.text().len() > 24, "{:?}", story.text());
    assert_eq!(story.text(), run().text());
    // The prompt and the statistics go to standard error.
    assert!(!story.text().contains("Once upon a time"));
    assert!(
        story.stderr.contains("Once upon a time"),
        "{}",
        story.stderr
    );
    assert!(story.stderr.contains("tok/s"), "{}", story.stderr);
}

#[test]
fn equal_seeds_generate_equal_text() {
    let story = |seed| {
        let args = ["run", "--device", "cpu", "-n", "24", "-q", "-s", seed];
        tabla(&args).text().to_string()
    };
    assert_eq!(story("7"), story("7"));
    assert_ne!(story("7"), story("8"));
}

#[test]
fn quiet_prints_nothing_to_stderr() {
    let args = ["run", "--device", "cpu", "-n", "4", "-q"];
    assert_eq!(tabla(&args).stderr, "");
}

#[test]
fn json_has_the_generated_text() {
    let story = tabla(&GREEDY).text().to_string();
    let mut args = vec!["run", "--json"];
    args.extend(GREEDY);
    let object = tabla(&args).json();
    assert_eq!(object["text"], story);
    assert_eq!(object["finish"], "length");
    assert_eq!(object["tokens"].as_array().map(Vec::len), Some(24));
    assert!(object["timings"]["predicted_per_second"].as_f64() > Some(0.0));
    assert!(object["seed"].is_u64());
}

#[test]
fn reads_the_prompt_from_option_file_and_stdin() {
    let file = Scratch::with_bytes("prompt.txt", b"The little dog\n");
    let prompt = |args: &[&str], input: &str| {
        let mut all = vec!["run", "--device", "cpu", "-n", "1", "--json"];
        all.extend(args);
        tabla_with_input(&all, input).json()["prompt_tokens"].clone()
    };
    let dog = prompt(&["-p", "The little dog"], "");
    assert_eq!(prompt(&["-f", file.path()], ""), dog);
    assert_eq!(prompt(&["-f", "-"], "The little dog\n"), dog);
    assert_eq!(prompt(&[], "The little dog\n"), dog);
    assert_eq!(prompt(&["-p", "dog"], "The little\n"), dog);
    assert_eq!(prompt(&[], ""), prompt(&["-p", "Once upon a time"], ""));
}

#[test]
fn closed_pipe_is_not_an_error() {
    let mut child = program(&["--device", "cpu", "-n", "64", "-q"])
        .stdin(Stdio::null())
        .spawn()
        .expect("program starts");
    drop(child.stdout.take());
    let ran = ran(child.wait_with_output().expect("program exits"));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn stops_at_a_full_context() {
    let args = [
        "run",
        "--device",
        "cpu",
        "-n",
        "-1",
        "--ignore-eos",
        "-c",
        "32",
        "--json",
    ];
    let object = tabla(&args).json();
    assert_eq!(object["finish"], "context");
}

#[test]
fn rejects_prompts_over_the_context_size() {
    let long = "dog ".repeat(200);
    let ran = tabla(&["run", "--device", "cpu", "-c", "16", "-p", &long]);
    check_failure(&ran, "increase it with -c");
}

/// Checks for exit code 1 and one line that starts with `error:` and contains the text.
fn check_failure(ran: &Ran, expected: &str) {
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.is_empty());
    let errors: Vec<&str> = ran
        .stderr
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "{}", ran.stderr);
    assert!(
        errors[0].contains(expected),
        "{expected:?} is not in {:?}",
        errors[0]
    );
}

#[test]
fn rejects_invalid_files_with_path_and_stage() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let empty = Scratch::with_bytes("empty.gguf", b"");
    let page = Scratch::with_bytes("page.gguf", b"<!DOCTYPE html><html><body>404</body></html>");
    let cut = Scratch::with_bytes("cut.gguf", b"GGUF\x03\x00\x00\x00\xff");
    for path in [
        "/no/such/model.gguf",
        folder,
        empty.path(),
        page.path(),
        cut.path(),
    ] {
        let ran = tabla(&["run", "--device", "cpu", "-m", path, "-p", "x"]);
        check_failure(&ran, "stage ");
        check_failure(&ran, path);
        check_failure(&tabla(&["inspect", path]), path);
        check_failure(&tabla(&["tokenize", "-m", path, "x"]), path);
    }
}

#[test]
fn invalid_arguments_exit_with_2() {
    for args in [
        &["run", "-n", "-3"][..],
        &["run", "--temp", "hot"],
        &["run", "--top-p", "1.5"],
        &["run", "-t", "-2"],
        &["bench", "-r", "0"],
        &["bench", "-p", "0", "-n", "0"],
        &["bench", "-npl", "257"],
        &["bench", "-npl", "2", "-ntg", "0"],
        &["detokenize", "x"],
        &["logits"],
    ] {
        let ran = tabla(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn detokenize_inverts_tokenize() {
    for text in [
        "Once upon a time, there was a cat.",
        "  two  spaces",
        "日本 \u{1f431}",
    ] {
        let ids = tabla(&["tokenize", text]);
        let back = tabla_with_input(&["detokenize"], ids.text());
        assert_eq!(back.text(), format!("{text}\n"));
        let words: Vec<&str> = ids.text().split_whitespace().collect();
        let mut args = vec!["detokenize"];
        args.extend(&words);
        assert_eq!(tabla(&args).text(), back.text());
        let object = tabla_with_input(&["tokenize", "--json"], &format!("{text}\n")).json();
        assert_eq!(object["count"], words.len());
    }
}

#[test]
fn writes_logits_as_npy() {
    let file = Scratch::new("logits.npy");
    let shape = |args: &[&str]| {
        let mut all = vec!["logits", "--device", "cpu", "-o", file.path()];
        all.extend(args);
        let ran = tabla(&all);
        assert_eq!(ran.text(), "");
        let bytes = std::fs::read(&file.path).expect("output file");
        assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
        let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        assert_eq!(header % 64, 0);
        let text = String::from_utf8_lossy(&bytes[10..header]).into_owned();
        let shape = text.split(['(', ')']).nth(1).expect("a shape");
        let shape: Vec<usize> = shape
            .split(", ")
            .map(|n| n.parse().expect("a number"))
            .collect();
        let data = bytes[header..].to_vec();
        assert_eq!(data.len(), shape.iter().product::<usize>() * 4);
        let numbers: Vec<f32> = data
            .as_chunks()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect();
        assert!(numbers.iter().all(|x| x.is_finite()));
        (shape, numbers)
    };
    let (all_shape, all) = shape(&["--precision", "exact", "--all", "--tokens", "1,2,3"]);
    let (one_shape, one) = shape(&["--precision", "exact", "--tokens", "1,2,3"]);
    let vocab = one_shape[1];
    assert_eq!((all_shape, one_shape), (vec![3, vocab], vec![1, vocab]));
    let largest = one.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
    for (a, b) in all[2 * vocab..].iter().zip(&one) {
        assert!((a - b).abs() <= 1e-4 * largest, "{a} {b}");
    }
    assert_eq!(shape(&["-p", "Once upon a time"]).0, [1, vocab]);
}

#[test]
fn logits_rejects_ids_out_of_the_vocabulary() {
    let file = Scratch::new("rejected.npy");
    let args = [
        "logits",
        "--device",
        "cpu",
        "-o",
        file.path(),
        "--tokens",
        "4000000",
    ];
    check_failure(&tabla(&args), "4000000");
}

#[test]
fn inspects_a_file() {
    let text = tabla(&["inspect", "--device", "cpu"]);
    for expected in [
        "general.architecture",
        "token_embd.weight",
        "tokenizer",
        "; tokenizer ",
        "supported  yes",
    ] {
        assert!(text.text().contains(expected), "{expected}");
    }
    let object = tabla(&["inspect", "--device", "cpu", "--json", "-c", "64"]).json();
    assert_eq!(object["runs"], true);
    assert_eq!(object["memory"]["context"], 64);
    let tokenizer = object["memory"]["tokenizer_bytes"].as_u64();
    // 1280 tokens.
    assert!(tokenizer.is_some_and(|bytes| (40_000..100_000).contains(&bytes)));
    assert!(object["tensors"].as_array().is_some_and(|t| !t.is_empty()));
    assert_eq!(object["metadata"]["general.architecture"]["type"], "string");
}

#[test]
fn inspects_a_folder() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/hf/bf16");
    let text = tabla(&["inspect", "--device", "cpu", folder]);
    for expected in [
        "model-00001-of-00003.safetensors: SAFETENSORS, 182.70 KiB",
        "3 files",
        "llama.rope.scaling.type",
        "model.layers.1.mlp.down_proj.weight",
        "mostly bf16",
        "stops at 2, 7",
        "supported  yes",
    ] {
        assert!(
            text.text().contains(expected),
            "{expected} is not in: {}",
            text.text()
        );
    }
    let object = tabla(&["inspect", "--device", "cpu", "--json", folder]).json();
    assert_eq!(object["format"], "safetensors");
    assert_eq!(object["version"], Value::Null);
    assert_eq!(object["files"].as_array().map(Vec::len), Some(3));
    assert_eq!(object["memory"]["dtype"], "bf16");
    assert_eq!(object["metadata"]["general.name"]["value"], "bf16");
}

#[test]
fn lists_tables() {
    let text = tabla(&["table", "--device", "cpu"]);
    assert!(text.text().starts_with("; table step"), "{}", text.text());
    assert!(text.text().contains("argmax"));
    let all = tabla(&["table", "--device", "cpu", "--which", "all"]);
    for name in [
        "table step, 1",
        "table step, 8",
        "table batch",
        "greedy",
        "sampled",
    ] {
        assert!(all.text().contains(&format!("; {name}")), "{name}");
    }
    let cmds = tabla(&["table", "--device", "cpu", "--json"]).json();
    let cmds = cmds.as_array().expect("an array");
    assert_eq!(
        cmds.len(),
        text.text().lines().filter(|l| !l.starts_with(';')).count()
    );
    for key in ["kernel", "slots", "grid", "bytes", "flops", "label"] {
        assert!(!cmds[0][key].is_null(), "{key}");
    }
}

/// Returns the folder `tests/golden/arch/<name>` and the tokens of its reference.
fn architecture(name: &str) -> (PathBuf, String) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/arch");
    let folder = golden.join(name);
    let text = std::fs::read_to_string(folder.join("golden.json")).expect("a golden file");
    let json: Value = serde_json::from_str(&text).expect("valid JSON");
    let ids = json["tokens"].as_array().expect("an array");
    let ids: Vec<String> = ids.iter().map(Value::to_string).collect();
    (folder, ids.join(","))
}

#[test]
fn reference_finds_a_modified_layer() {
    for name in ["llama", "gemma3", "qwen3moe"] {
        let (folder, tokens) = architecture(name);
        let model = folder.join("model.gguf");
        let reference = folder.join("hidden.npy");
        let compare = |model: &str| {
            let reference = reference.to_str().expect("UTF-8 path");
            let args = ["table", "--device", "cpu", "--reference", reference];
            tabla(&[&args[..], &["--tokens", &tokens, model]].concat())
        };
        let unmodified = compare(model.to_str().expect("UTF-8 path"));
        assert!(
            unmodified.text().contains("layer   1"),
            "{}",
            unmodified.text()
        );

        let source = tabla::Source::Path(model.clone());
        let directory = tabla::tools::open_directory(&source).expect("a model");
        let tensor = directory.tensor("blk.1.attn_k.weight").expect("a matrix");
        let at = usize::try_from(tensor.offset).expect("a small file");
        let mut bytes = std::fs::read(&model).expect("a model");
        // Changes the exponent of a BF16 number.
        bytes[at + 1] ^= 0x02;
        let damaged = Scratch::with_bytes(&format!("{name}-damaged.gguf"), &bytes);
        let ran = compare(damaged.path());
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("layer 1 differs"), "{}", ran.stderr);
        let listed = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(listed.contains("blk.1.attn_k"), "{listed}");
        assert!(!listed.contains("blk.0."), "{listed}");
    }
}

#[test]
fn rejects_references_of_another_shape_or_format() {
    let (folder, tokens) = architecture("llama");
    let model = folder.join("model.gguf");
    let model = model.to_str().expect("UTF-8 path");
    let file = folder.join("hidden.npy");
    let bytes = std::fs::read(&file).expect("an array");
    let cut = Scratch::with_bytes("cut.npy", &bytes[..bytes.len() - 4]);
    let short = Scratch::with_bytes("short.npy", &bytes[..7]);
    let run = |reference: &str, tokens: &str| {
        let args = ["table", "--device", "cpu", model, "--reference", reference];
        tabla(&[&args[..], &["--tokens", tokens]].concat())
    };
    check_failure(&run(cut.path(), &tokens), "shape");
    check_failure(&run(short.path(), &tokens), "short.npy");
    check_failure(&run(model, &tokens), "expected an .npy file");
    check_failure(&run(file.to_str().expect("UTF-8 path"), "1,2,3"), "96");
}

#[test]
fn lists_the_cpu_first() {
    // Mesa prints an error for each list of GPUs without this variable.
    let [mut unset, mut empty] = [program(&["devices"]), program(&["devices"])];
    unset.env_remove("XDG_RUNTIME_DIR");
    empty.env("XDG_RUNTIME_DIR", "");
    for mut program in [unset, empty] {
        let output = program.env_remove("NODEVICE_SELECT").output();
        let listed = ran(output.expect("program starts"));
        assert_eq!(listed.stderr, "");
        assert!(listed.text().contains("threads"));
    }
    let devices = tabla(&["devices", "--json"]).json();
    assert!(devices["cpu"]["threads"].as_u64() > Some(0));
    assert!(devices["gpus"].is_array());
}

/// Needs `TABLA_TESTDATA`, the folder of real models; skipped without it.
#[test]
fn inspect_prints_templates_with_their_hash() {
    let Some(folder) = std::env::var_os("TABLA_TESTDATA") else {
        let _ = writeln!(
            std::io::stderr().lock(),
            "SKIPPED: TABLA_TESTDATA is not set"
        );
        return;
    };
    let file = Path::new(&folder).join("gguf/SmolLM2-135M-Instruct.Q4_1.gguf");
    let file = file.to_str().expect("UTF-8 path");
    let object = tabla(&["inspect", "--device", "cpu", "--json", file]).json();
    assert_eq!(object["chat_template"], "default");
    let template = &object["chat_templates"][0];
    let hash = template["sha256"].as_str().expect("a hash");
    assert!(hash.len() == 64 && template["error"].is_null());
    let source = template["template"].as_str().expect("a source");
    let shown = tabla(&["inspect", "--device", "cpu", file]);
    assert!(shown.text().contains(&format!("SHA-256 {hash}")));
    let line = source.lines().next().expect("a line");
    assert!(shown.text().contains(line));
}

#[test]
fn context_shift_continues_at_a_full_context() {
    let story = ["run", "--json", "--device", "cpu", "--temp", "0"];
    let full = ["-c", "32", "-n", "60", "--context-shift", "--keep", "5"];
    let object = tabla(&[&story[..], &full].concat()).json();
    assert_eq!(object["finish"], "length");
    assert_eq!(object["tokens"].as_array().map(Vec::len), Some(60));
    let without = tabla(&["run", "--device", "cpu", "-n", "1", "--keep", "5"]);
    assert_eq!(without.code, Some(0), "{}", without.stderr);
    let note = "note: --keep has no effect without --context-shift";
    assert!(without.stderr.contains(note), "{}", without.stderr);
}
