//! Tests of `tabla convert`: both directions, and the converted numbers.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tabla::dtype::DType;
use tabla::format::{Directory, open};
use tabla::quant;
use tempfile::TempDir;

/// A temporary folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = TempDir::with_prefix(format!("tabla-convert-{name}-"));
        Self(folder.expect("a temporary folder").keep())
    }

    fn path(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.into_os_string().into_string().expect("UTF-8 path")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed remains in the build folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn golden(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join("../tests/golden").join(name);
    path.into_os_string().into_string().expect("UTF-8 path")
}

fn tabla(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tabla"))
        .args(args)
        .output()
        .expect("program starts")
}

fn convert(args: &[&str]) -> Value {
    let ran = tabla(&[&["convert"], args, &["--json"]].concat());
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{error}");
    serde_json::from_slice(&ran.stdout).expect("valid JSON")
}

/// Returns the numbers of each tensor, by name.
fn numbers(file: &Directory) -> BTreeMap<String, Vec<f32>> {
    let tensors = file.tensors.iter();
    let decode = |t: &tabla::format::TensorInfo| {
        let dtype = t.dtype.known().expect("a known type");
        let mut row = vec![0.0; usize::try_from(t.elements()).expect("fits usize")];
        quant::decode_row(dtype, file.bytes(t), &mut row);
        (t.name.clone(), row)
    };
    tensors.map(decode).collect()
}

/// Returns the `.npy` file with the logits of a fixed prompt.
fn logits(model: &str, folder: &Folder) -> Vec<u8> {
    let out = folder.path("logits.npy");
    let tokens = [
        "--tokens",
        "1,5,9,2,7",
        "--device",
        "cpu",
        "--precision",
        "exact",
    ];
    let ran = tabla(&[&["logits", "-m", model, "--output", &out][..], &tokens].concat());
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{model}: {error}");
    std::fs::read(out).expect("existing file")
}

/// Reads the numbers of an `.npy` file.
fn npy(path: &str) -> Vec<f32> {
    let bytes = std::fs::read(path).expect("existing file");
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let (numbers, _) = bytes[10 + header..].as_chunks();
    numbers.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

#[test]
fn round_trip_is_lossless() {
    for name in ["llama", "llama_scaling", "qwen2", "qwen3"] {
        let folder = Folder::new(name);
        let from = golden(&format!("{name}.gguf"));
        let (middle, back) = (folder.path("hf"), folder.path("back.gguf"));
        convert(&[&from, &middle]);
        convert(&[&middle, &back]);
        let [before, after] = [&from, &back].map(|p| open(p.as_ref()).expect("valid file"));
        let mut after_numbers = numbers(&after);
        for (tensor, expected) in numbers(&before) {
            let actual = after_numbers.remove(&tensor);
            // RoPE divisors may differ in the last bit; the logits below must not.
            if tensor != "rope_freqs.weight" {
                assert!(actual == Some(expected), "{name}: {tensor}");
            }
        }
        let rest: Vec<_> = after_numbers.into_keys().collect();
        assert!(rest.is_empty() || rest == ["rope_freqs.weight"], "{rest:?}");
        assert!(logits(&from, &folder) == logits(&back, &folder), "{name}");
        let tokens = |file: &Directory| {
            let tokens = file
                .metadata
                .strs("tokenizer.ggml.tokens")
                .expect("strings");
            let tokens = tokens.expect("a vocabulary");
            tokens.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(tokens(&before) == tokens(&after), "{name}");
    }
}

#[test]
fn converted_checkpoint_has_equal_logits() {
    let folder = Folder::new("checkpoint");
    let out = folder.path("out.gguf");
    let report = convert(&[&golden("hf/bf16"), &out]);
    let file = open(out.as_ref()).expect("valid file");
    let matrix = file.tensor("blk.0.attn_q.weight").expect("existing file");
    assert_eq!(
        matrix.dtype.known(),
        Some(DType::Bf16),
        "the type is unchanged"
    );
    let vector = file.tensor("output_norm.weight").expect("existing file");
    assert_eq!(vector.dtype.known(), Some(DType::F32));
    assert_eq!(file.metadata.u32("general.file_type").unwrap(), Some(32));
    assert!(
        file.tensor("rope_freqs.weight").is_some(),
        "Llama 3 RoPE scaling"
    );
    let tensors = report["tensors"].as_array().expect("an array").iter();
    assert!(tensors.clone().all(|t| t["error"] == 0.0), "lossless");

    let ids = std::fs::read_to_string(golden("hf/tokens.json")).expect("existing file");
    let ids: Value = serde_json::from_str(&ids).expect("valid JSON");
    let ids = ids["tokens"].as_array().expect("ids").iter();
    let ids: Vec<_> = ids.map(ToString::to_string).collect();
    let actual = folder.path("logits.npy");
    let ran = tabla(&[
        "logits",
        "-m",
        &out,
        "--tokens",
        &ids.join(","),
        "--all",
        "--output",
        &actual,
        "--device",
        "cpu",
        "--precision",
        "exact",
    ]);
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let expected = npy(&golden("hf/bf16/logits.npy"));
    let actual = npy(&actual);
    assert_eq!(actual.len(), expected.len());
    for (i, (a, b)) in actual.iter().zip(&expected).enumerate() {
        assert!((a - b).abs() <= 1e-4, "logit {i}: {a} {b}");
    }
}

#[test]
fn converts_types_that_gguf_does_not_support() {
    let folder = Folder::new("codes");
    // Types that GGUF does not support become the smallest type with the same values.
    for (name, to) in [
        ("mlx-4", "q4_1"),
        ("mlx-mxfp4", "mxfp4"),
        ("mlx-mixed", "q4_1"),
        ("fp8-block", "f32"),
        ("int8", "q8_0"),
        ("ternary-divides", "i2_s"),
    ] {
        let out = folder.path(&format!("{name}.gguf"));
        let report = convert(&[&golden(&format!("hf/{name}")), &out]);
        let tensors = report["tensors"].as_array().expect("an array").iter();
        let up = tensors.clone().find(|t| t["name"] == "blk.0.ffn_up.weight");
        assert_eq!(up.expect("existing file")["to"], to, "{name}");
        for t in tensors {
            assert_eq!(t["error"], 0.0, "{name}: {t}");
        }
        let exact = folder.path(&format!("{name}-f32.gguf"));
        let report = convert(&[&golden(&format!("hf/{name}")), &exact, "--dtype", "f32"]);
        let tensors = report["tensors"].as_array().expect("an array").iter();
        assert!(tensors.clone().all(|t| t["error"] == 0.0), "{name}");
        let [half, whole] = [out, exact].map(|p| numbers(&open(p.as_ref()).expect("valid file")));
        assert!(half.keys().eq(whole.keys()));
    }
}

#[test]
fn writes_config_and_tokenizer() {
    let folder = Folder::new("folder");
    let out = folder.path("hf");
    convert(&[&golden("llama.gguf"), &out, "--dtype", "bf16"]);
    let read = |name: &str| {
        let text = std::fs::read_to_string(Path::new(&out).join(name)).expect(name);
        serde_json::from_str::<Value>(&text).expect(name)
    };
    let config = read("config.json");
    let expected = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 60,
        "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1,
        "intermediate_size": 108, "head_dim": 12, "vocab_size": 288, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "torch_dtype": "bfloat16", "max_position_embeddings": 256,
        "bos_token_id": 1, "eos_token_id": 2,
    });
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&config[key], value, "{key}");
    }
    assert_eq!(
        config["rope_scaling"]["rope_type"], "llama3",
        "from the RoPE divisors"
    );
    assert_eq!(read("tokenizer.json")["model"]["type"], "BPE");
    let file = open(out.as_ref()).expect("valid file");
    let name = "model.layers.1.self_attn.k_proj.weight";
    let tensor = file.tensor(name).expect(name);
    assert_eq!(tensor.dtype.known(), Some(DType::Bf16));
}

#[test]
fn keeps_all_stop_tokens() {
    let folder = Folder::new("ends");
    let (gguf, back) = (folder.path("model.gguf"), folder.path("hf"));
    convert(&[&golden("hf/bf16"), &gguf]);
    let file = open(gguf.as_ref()).expect("valid file");
    let token = |key: &str| {
        let key = format!("tokenizer.ggml.{key}_token_id");
        file.metadata.u32(&key).expect("a number")
    };
    assert_eq!(
        [token("eos"), token("eot"), token("eom")],
        [Some(2), Some(7), None]
    );
    convert(&[&gguf, &back]);
    let config = std::fs::read_to_string(Path::new(&back).join("config.json"));
    let config: Value = serde_json::from_str(&config.expect("existing file")).expect("valid JSON");
    assert_eq!(config["eos_token_id"], json!([2, 7]));
}

#[test]
fn errors_leave_no_output() {
    let folder = Folder::new("errors");
    let existing = folder.path("existing");
    std::fs::create_dir(&existing).expect("writable folder");
    let from = golden("llama.gguf");
    let new = folder.path("new");
    for (args, expected) in [
        (
            [&*from, &existing, "f32"],
            "already exists, expected a new folder",
        ),
        (
            [&from, &new, "q4_k_m"],
            "safetensors output supports F32, F16 and BF16",
        ),
        (
            [&existing, &folder.path("x.gguf"), "f32"],
            "a directory without a model",
        ),
    ] {
        let ran = tabla(&["convert", args[0], args[1], "--dtype", args[2]]);
        assert!(!ran.status.success(), "{args:?}");
        let error = String::from_utf8(ran.stderr).expect("UTF-8");
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert_eq!(
        std::fs::read_dir(&folder.0).expect("existing file").count(),
        1
    );
}

/// A complete file replaces an existing one; an error does not change it.
#[test]
fn files_are_replaced_when_they_are_complete() {
    let folder = Folder::new("existing");
    let out = folder.path("model.gguf");
    for (command, args) in [
        ("convert", ["--dtype", "f32"].as_slice()),
        ("quantize", &["Q8_0"]),
    ] {
        std::fs::write(&out, "old").expect("writable folder");
        let missing = tabla(&[&[command, &folder.path("none"), &out, "--force"], args].concat());
        assert!(!missing.status.success());
        assert_eq!(std::fs::read(&out).expect("the old file"), b"old");
        let model = golden("llama.gguf");
        let args = [&[command, &model, &out], args].concat();
        let refused = tabla(&args);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains("exists: use --force"), "{command}: {error}");
        assert_eq!(std::fs::read(&out).expect("the old file"), b"old");
        let ran = tabla(&[&args[..], &["--force"]].concat());
        assert!(ran.status.success());
        assert!(open(Path::new(&out)).is_ok(), "{command}: a complete file");
    }
    let files = std::fs::read_dir(&folder.0).expect("existing folder");
    assert_eq!(files.count(), 1, "no temporary file is left");
}

#[test]
fn merges_adapters_with_their_scales() {
    let folder = Folder::new("lora");
    let model = golden("arch/llama/hf");
    let adapter = golden("lora/llama");
    let written = |name: &str, args: &[&str]| {
        let out = folder.path(name);
        convert(&[&[&*model, &*out, "--dtype", "F32"], args].concat());
        numbers(&open(Path::new(&out)).expect("a model"))
    };
    let plain = written("plain.gguf", &[]);
    let whole = written("whole.gguf", &["--lora-merge", &adapter]);
    let (part, rest) = (format!("{adapter}=0.25"), format!("{adapter}=0.75"));
    let parts = ["--lora-merge", &*part, "--lora-merge", &*rest];
    let parts = written("parts.gguf", &parts);
    let largest = |name: &str, other: &BTreeMap<String, Vec<f32>>| {
        let pairs = whole[name].iter().zip(&other[name]);
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    for name in plain.keys() {
        assert!(largest(name, &parts) < 1e-6, "{name}");
        let adapted = name.starts_with("blk.") && !name.contains("norm");
        assert_eq!(largest(name, &plain) > 1e-3, adapted, "{name}");
    }
    for (value, expected) in [
        ("no-adapter", "no-adapter"),
        (&*format!("{adapter}=inf"), "expected a finite number"),
    ] {
        let out = folder.path("none.gguf");
        let ran = tabla(&["convert", &model, &out, "--lora-merge", value]);
        let error = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && error.contains(expected), "{error}");
        assert!(!Path::new(&out).exists());
    }
}
