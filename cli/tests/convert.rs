//! `tabla convert`: both ways, and what comes of the numbers.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tabla::dtype::DType;
use tabla::format::{Directory, open};
use tabla::quant;

/// A folder of this test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = folder.join(format!("convert-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the scratch folder takes folders");
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        let path = self.0.join(name);
        path.into_os_string().into_string().expect("a plain name")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays is swept with the target folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn golden(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join("../tests/golden").join(name);
    path.into_os_string().into_string().expect("a plain name")
}

fn tabla(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tabla"))
        .args(args)
        .output()
        .expect("it runs")
}

fn convert(args: &[&str]) -> Value {
    let ran = tabla(&[&["convert"], args, &["--json"]].concat());
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

/// The numbers of every tensor of a file, by name.
fn numbers(file: &Directory) -> BTreeMap<String, Vec<f32>> {
    let tensors = file.tensors.iter();
    let decode = |t: &tabla::format::TensorInfo| {
        let dtype = t.dtype.known().expect("a known type");
        let mut row = vec![0.0; usize::try_from(t.elements()).expect("few")];
        quant::decode_row(dtype, file.bytes(t), &mut row);
        (t.name.clone(), row)
    };
    tensors.map(decode).collect()
}

/// The logits after some tokens, bit for bit.
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
    let ran = tabla(&[&["logits", "-m", model, "--out", &out][..], &tokens].concat());
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{model}: {said}");
    std::fs::read(out).expect("it is there")
}

/// The last number of each row of an array of floats, and all numbers of the last row.
fn npy(path: &str) -> Vec<f32> {
    let bytes = std::fs::read(path).expect("it is there");
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let (numbers, _) = bytes[10 + header..].as_chunks();
    numbers.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

#[test]
fn a_file_comes_back_bit_for_bit() {
    for name in ["llama", "llama_scaling", "qwen2", "qwen3"] {
        let folder = Folder::new(name);
        let from = golden(&format!("{name}.gguf"));
        let (middle, back) = (folder.path("hf"), folder.path("back.gguf"));
        convert(&[&from, &middle]);
        convert(&[&middle, &back]);
        let [before, after] = [&from, &back].map(|p| open(p.as_ref()).expect("it opens"));
        let mut after_numbers = numbers(&after);
        for (tensor, wanted) in numbers(&before) {
            let found = after_numbers.remove(&tensor);
            // Divisors may be others by the last bit, as long as frequencies are not.
            if tensor != "rope_freqs.weight" {
                assert!(found == Some(wanted), "{name}: {tensor}");
            }
        }
        let left: Vec<_> = after_numbers.into_keys().collect();
        assert!(left.is_empty() || left == ["rope_freqs.weight"], "{left:?}");
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
fn a_checkpoint_has_the_logits_of_its_file() {
    let folder = Folder::new("checkpoint");
    let out = folder.path("out.gguf");
    let said = convert(&[&golden("hf/bf16"), &out]);
    let file = open(out.as_ref()).expect("it opens");
    let matrix = file.tensor("blk.0.attn_q.weight").expect("it is there");
    assert_eq!(
        matrix.dtype.known(),
        Some(DType::Bf16),
        "it stays what it is"
    );
    let vector = file.tensor("output_norm.weight").expect("it is there");
    assert_eq!(vector.dtype.known(), Some(DType::F32));
    assert_eq!(file.metadata.u32("general.file_type").unwrap(), Some(32));
    assert!(
        file.tensor("rope_freqs.weight").is_some(),
        "the rule of Llama 3"
    );
    let tensors = said["tensors"].as_array().expect("a list").iter();
    assert!(
        tensors.clone().all(|t| t["error"] == 0.0),
        "nothing is lost"
    );

    let ids = std::fs::read_to_string(golden("hf/tokens.json")).expect("it is there");
    let ids: Value = serde_json::from_str(&ids).expect("JSON");
    let ids = ids["tokens"].as_array().expect("ids").iter();
    let ids: Vec<_> = ids.map(ToString::to_string).collect();
    let found = folder.path("logits.npy");
    let ran = tabla(&[
        "logits",
        "-m",
        &out,
        "--tokens",
        &ids.join(","),
        "--all",
        "--out",
        &found,
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
    let wanted = npy(&golden("hf/bf16/logits.npy"));
    let found = npy(&found);
    assert_eq!(found.len(), wanted.len());
    for (i, (a, b)) in found.iter().zip(&wanted).enumerate() {
        assert!((a - b).abs() <= 1e-4, "logit {i}: {a} {b}");
    }
}

#[test]
fn codes_of_other_formats_become_numbers() {
    let folder = Folder::new("codes");
    // Of each: what GGUF has no name for is f16 then, whose error is under a part of 2048.
    for name in [
        "mlx-4",
        "mlx-mxfp4",
        "mlx-mixed",
        "fp8-block",
        "int8",
        "ternary-divides",
    ] {
        let out = folder.path(&format!("{name}.gguf"));
        let said = convert(&[&golden(&format!("hf/{name}")), &out]);
        let tensors = said["tensors"].as_array().expect("a list").iter();
        let up = tensors.clone().find(|t| t["name"] == "blk.0.ffn_up.weight");
        assert_eq!(up.expect("it is there")["to"], "f16", "{name}");
        for t in tensors {
            assert!(t["error"].as_f64() < Some(1.0 / 2048.0), "{name}: {t}");
        }
        let exact = folder.path(&format!("{name}-f32.gguf"));
        let said = convert(&[&golden(&format!("hf/{name}")), &exact, "--dtype", "f32"]);
        let tensors = said["tensors"].as_array().expect("a list").iter();
        assert!(tensors.clone().all(|t| t["error"] == 0.0), "{name}");
        let [half, whole] = [out, exact].map(|p| numbers(&open(p.as_ref()).expect("it opens")));
        assert!(half.keys().eq(whole.keys()));
    }
}

#[test]
fn a_folder_has_what_others_look_for() {
    let folder = Folder::new("folder");
    let out = folder.path("hf");
    convert(&[&golden("llama.gguf"), &out, "--dtype", "bf16"]);
    let read = |name: &str| {
        let text = std::fs::read_to_string(Path::new(&out).join(name)).expect(name);
        serde_json::from_str::<Value>(&text).expect(name)
    };
    let config = read("config.json");
    let wanted = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 60,
        "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1,
        "intermediate_size": 108, "head_dim": 12, "vocab_size": 288, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "torch_dtype": "bfloat16", "max_position_embeddings": 256,
        "bos_token_id": 1, "eos_token_id": 2,
    });
    for (key, value) in wanted.as_object().expect("an object") {
        assert_eq!(&config[key], value, "{key}");
    }
    assert_eq!(
        config["rope_scaling"]["rope_type"], "llama3",
        "out of its divisors"
    );
    assert_eq!(read("tokenizer.json")["model"]["type"], "BPE");
    let file = open(out.as_ref()).expect("it opens");
    let name = "model.layers.1.self_attn.k_proj.weight";
    let tensor = file.tensor(name).expect(name);
    assert_eq!(tensor.dtype.known(), Some(DType::Bf16));
}

#[test]
fn every_end_of_a_text_goes_along() {
    let folder = Folder::new("ends");
    let (gguf, back) = (folder.path("model.gguf"), folder.path("hf"));
    convert(&[&golden("hf/bf16"), &gguf]);
    let file = open(gguf.as_ref()).expect("it opens");
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
    let config: Value = serde_json::from_str(&config.expect("it is there")).expect("JSON");
    assert_eq!(config["eos_token_id"], json!([2, 7]));
}

#[test]
fn what_cannot_be_done_leaves_nothing() {
    let folder = Folder::new("refused");
    let there = folder.path("there");
    std::fs::create_dir(&there).expect("the folder takes folders");
    let from = golden("llama.gguf");
    let new = folder.path("new");
    for (args, clue) in [
        ([&*from, &there, "f32"], "already exists"),
        ([&from, &new, "q4_k_m"], "safetensors are F32, F16 or BF16"),
        (
            [&there, &folder.path("x.gguf"), "f32"],
            "a directory without a model",
        ),
    ] {
        let ran = tabla(&["convert", args[0], args[1], "--dtype", args[2]]);
        assert!(!ran.status.success(), "{args:?}");
        let said = String::from_utf8(ran.stderr).expect("UTF-8");
        assert!(said.contains(clue), "{clue}: {said}");
    }
    assert_eq!(
        std::fs::read_dir(&folder.0).expect("it is there").count(),
        1
    );
}
