//! Checkpoints of Hugging Face and MLX: `tests/reference/checkpoints.py` made them.

use crate::common::{devices, golden, picks, session, testdata, worst};
use crate::npy::Npy;
use crate::scratch::{Folder, safetensors};
use std::path::Path;
use tabla::dtype::DType;
use tabla::format::write::Writer;
use tabla::{DeviceChoice, ErrorKind, LoadOptions, Precision, Session, Source};

/// Greatest difference of a logit from the reference, absolute.
const TOLERANCE: f32 = 1e-4;

/// Checkpoints, and how far their logits may be from those of the weights before quantisation:
/// root mean square, relative. The weights are random, so that nothing is forgiven.
const CHECKPOINTS: &[(&str, f32)] = &[
    ("bf16", 1e-6),
    ("mlx-2", 1.2),
    ("mlx-3", 0.8),
    ("mlx-4", 0.5),
    ("mlx-5", 0.25),
    ("mlx-6", 0.2),
    ("mlx-8", 0.01),
    ("mlx-mxfp4", 0.6),
    ("mlx-mxfp8", 0.2),
    ("mlx-nvfp4", 0.5),
    ("mlx-mixed", 0.4),
    ("fp8-block", 0.12),
    ("fp8-channel", 0.12),
    ("int8", 0.03),
    ("ternary-multiplies", 1.2),
    ("ternary-divides", 1.2),
];

/// A checkpoint with the tokenizer that all of them share.
fn checkpoint(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.copy(&golden("hf").join(name));
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        folder.write(file, &read(&golden("hf/bf16").join(file)));
    }
    folder
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The tokens of the golden logits.
fn tokens() -> Vec<u32> {
    let text = std::fs::read(golden("hf/tokens.json")).expect("a golden file");
    let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    serde_json::from_value(json["tokens"].clone()).expect("a list of ids")
}

/// Logits of every position, by prefill and then again token by token.
fn logits(path: &Path, options: &LoadOptions, tokens: &[u32]) -> Vec<f32> {
    let mut s = session(path, options);
    s.prefill(tokens, &mut |_, _| {}).expect("it fits");
    let vocab = s.facts().vocab as usize;
    let mut all = vec![0.0; tokens.len() * vocab];
    s.logits_all(&mut all).expect("the room is right");
    let steps = by_steps(&mut s, tokens);
    let (at, difference) = worst(&all, &steps);
    assert!(
        difference <= TOLERANCE,
        "{}: decode and prefill differ by {difference} at {at}",
        path.display()
    );
    all
}

fn by_steps(s: &mut Session, tokens: &[u32]) -> Vec<f32> {
    s.reset();
    let vocab = s.facts().vocab as usize;
    let mut all = vec![0.0; tokens.len() * vocab];
    for (token, row) in tokens.iter().zip(all.chunks_exact_mut(vocab)) {
        s.prefill(&[*token], &mut |_, _| {}).expect("it fits");
        s.logits(row).expect("the room is right");
    }
    all
}

/// Root mean square of the differences, over that of `b`.
fn relative(a: &[f32], b: &[f32]) -> f32 {
    let square = |sum: f32, x: f32| sum + x * x;
    let differences = a.iter().zip(b).map(|(a, b)| a - b);
    let wanted = b.iter().copied();
    (differences.fold(0.0, square) / wanted.fold(0.0, square)).sqrt()
}

#[test]
fn every_stored_form_gives_the_logits_of_its_weights() {
    let tokens = tokens();
    let plain = Npy::read(&golden("hf/bf16/logits.npy"));
    for (name, bound) in CHECKPOINTS {
        let folder = checkpoint(name);
        let wanted = Npy::read(&golden("hf").join(name).join("logits.npy"));
        for (device, options) in devices(Precision::Exact) {
            let found = logits(&folder.0, &options, &tokens);
            let (at, difference) = worst(&found, &wanted.data);
            assert!(
                difference <= TOLERANCE,
                "{name} on {device}: {difference} at position {} token {}",
                at / wanted.cols,
                at % wanted.cols
            );
            let far = relative(&found, &plain.data);
            assert!(far <= *bound, "{name} on {device}: {far} from unquantised");
        }
    }
}

/// The same weights as GGUF, whose Q and K are permuted: their products are summed in another
/// order, so that the logits are the same but for the last bits.
#[test]
fn the_gguf_of_a_checkpoint_gives_its_logits() {
    let (tokens, folder) = (tokens(), checkpoint("bf16"));
    let wanted = Npy::read(&golden("hf/bf16/logits.npy"));
    for (device, options) in devices(Precision::Exact) {
        let file = logits(&golden("hf/bf16.gguf"), &options, &tokens);
        let (_, difference) = worst(&file, &wanted.data);
        assert!(difference <= TOLERANCE, "{device}: {difference}");
        let (_, difference) = worst(&file, &logits(&folder.0, &options, &tokens));
        assert!(difference <= 1e-5, "{device}: {difference}");
    }
}

/// The tensors of a GGUF file under the names of Hugging Face, in `shards` files.
fn renamed(gguf: &Path, shards: usize, dtype: DType) -> Folder {
    let file = tabla::open_directory(&Source::Path(gguf.to_path_buf())).expect("sound");
    let mut parts = vec![Vec::new(); shards];
    for (i, tensor) in file.tensors.iter().enumerate() {
        let name = match tensor.name.strip_suffix(".weight").expect("a weight") {
            "token_embd" => "model.embed_tokens.weight".to_string(),
            "output_norm" => "model.norm.weight".to_string(),
            name => {
                let (layer, part) = name[4..].split_once('.').expect("a layer");
                let part = match part {
                    "attn_norm" => "input_layernorm".to_string(),
                    "ffn_norm" => "post_attention_layernorm".to_string(),
                    "attn_output" => "self_attn.o_proj".to_string(),
                    "attn_q_norm" | "attn_k_norm" => format!("self_attn.{}", &part[5..]),
                    "attn_q" | "attn_k" | "attn_v" => format!("self_attn.{}_proj", &part[5..]),
                    ffn => format!("mlp.{}_proj", &ffn[4..]),
                };
                format!("model.layers.{layer}.{part}.weight")
            }
        };
        let shape: Vec<u64> = tensor.dims.iter().rev().copied().collect();
        let (spelling, data) = stored(&file, i, dtype);
        parts[i % shards].push((name, spelling, shape, data));
    }
    let folder = Folder::new(&format!("renamed-{shards}-{dtype}"));
    let mut map = serde_json::Map::new();
    for (no, part) in parts.iter().enumerate() {
        let name = match shards {
            1 => "model.safetensors".to_string(),
            _ => format!("model-{:05}-of-{shards:05}.safetensors", no + 1),
        };
        map.extend(part.iter().map(|t| (t.0.clone(), name.clone().into())));
        folder.write(&name, &safetensors(part));
    }
    if shards > 1 {
        let index = serde_json::json!({ "metadata": {}, "weight_map": map });
        folder.write("model.safetensors.index.json", index.to_string().as_bytes());
    }
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        folder.write(file, &read(&golden("hf/bf16").join(file)));
    }
    folder
}

/// A tensor's bytes in `dtype`, or as they are for a vector.
fn stored(file: &tabla::format::Directory, index: usize, dtype: DType) -> (&'static str, Vec<u8>) {
    let tensor = &file.tensors[index];
    let bytes = file.bytes(tensor);
    if dtype == DType::F32 || tensor.dims.len() == 1 {
        return ("F32", bytes.to_vec());
    }
    // bf16 is the upper half of f32.
    let halves = bytes.chunks_exact(4).flat_map(|b| [b[2], b[3]]);
    ("BF16", halves.collect())
}

/// A GGUF file with matrices in `dtype`.
fn twin(gguf: &Path, dtype: DType) -> Vec<u8> {
    let file = tabla::open_directory(&Source::Path(gguf.to_path_buf())).expect("sound");
    let mut w = Writer::new();
    for (key, value) in file.metadata.iter() {
        w.copy(key, value);
    }
    for (i, tensor) in file.tensors.iter().enumerate() {
        let (spelling, data) = stored(&file, i, dtype);
        let dtype = DType::from_name(&spelling.to_lowercase()).expect("a type");
        w.tensor(&tensor.name, dtype, &tensor.dims, data);
    }
    w.finish().expect("sizes fit")
}

/// What `qwen3.gguf` has in its keys.
const CONFIG: &str = r#"{
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64,
    "intermediate_size": 92, "num_hidden_layers": 2, "num_attention_heads": 9,
    "num_key_value_heads": 3, "head_dim": 16, "vocab_size": 291, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": null, "hidden_act": "silu",
    "sliding_window": null, "use_sliding_window": false, "tie_word_embeddings": true
}"#;

#[test]
fn the_same_numbers_give_the_same_bits_in_every_container() {
    let gguf = golden("qwen3.gguf");
    let tokens: Vec<u32> = tokens();
    for dtype in [DType::F32, DType::Bf16] {
        let file = Folder::new(&format!("twin-{dtype}"));
        let file = file.write("model.gguf", &twin(&gguf, dtype));
        for shards in [1, 3] {
            let folder = renamed(&gguf, shards, dtype);
            folder.write("config.json", CONFIG.as_bytes());
            for (device, options) in devices(Precision::Exact) {
                let wanted = logits(&file, &options, &tokens);
                let found = logits(&folder.0, &options, &tokens);
                let same = wanted
                    .iter()
                    .zip(&found)
                    .all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{dtype} in {shards} files on {device}");
            }
        }
    }
}

#[test]
fn matrices_of_doubles_are_read_as_floats() {
    let gguf = golden("qwen3.gguf");
    let file = tabla::open_directory(&Source::Path(gguf.clone())).expect("sound");
    let mut w = Writer::new();
    for (key, value) in file.metadata.iter() {
        w.copy(key, value);
    }
    for tensor in &file.tensors {
        let floats = file.bytes(tensor).as_chunks().0.iter();
        let doubles = floats.flat_map(|b| f64::from(f32::from_le_bytes(*b)).to_le_bytes());
        w.tensor(
            &tensor.name,
            DType::F64,
            &tensor.dims,
            doubles.collect::<Vec<u8>>(),
        );
    }
    let folder = Folder::new("doubles");
    let path = folder.write("model.gguf", &w.finish().expect("sizes fit"));
    let options = &devices(Precision::Exact)[0].1;
    let tokens = tokens();
    let [wanted, found] = [&gguf, &path].map(|path| logits(path, options, &tokens));
    assert_eq!(wanted, found);
}

fn load(path: &Path) -> Result<(), tabla::Error> {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        ..LoadOptions::default()
    };
    tabla::load(&Source::Path(path.to_path_buf()), &options, &mut |_| {}).map(drop)
}

#[track_caller]
fn refused(folder: &Folder, kind: ErrorKind, words: &[&str]) {
    let error = load(&folder.0).expect_err(words[0]);
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for word in ["stage "].iter().chain(words) {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
}

#[test]
fn what_is_wrong_with_a_folder_is_named() {
    let shard = "model-00002-of-00003.safetensors";
    let folder = checkpoint("bf16");
    load(&folder.0).expect("sound");
    folder.remove(shard);
    refused(
        &folder,
        ErrorKind::Io,
        &["stage 4 weights", shard, "no such file; 1 of the 3 files"],
    );

    let folder = checkpoint("bf16");
    folder.edit(
        "model.safetensors.index.json",
        &format!("\"{shard}\""),
        "\"../other.safetensors\"",
    );
    refused(
        &folder,
        ErrorKind::Format,
        &["../other.safetensors", "invalid file name"],
    );

    let folder = checkpoint("bf16");
    folder.remove("config.json");
    refused(
        &folder,
        ErrorKind::Io,
        &["stage 4 weights", "config.json: no such file"],
    );

    let folder = checkpoint("int8");
    folder.edit(
        "config.json",
        "\"num_hidden_layers\": 2",
        "\"num_hidden_layers\": 3",
    );
    refused(
        &folder,
        ErrorKind::Format,
        &["tensor model.layers.2.input_layernorm.weight is missing"],
    );
    folder.edit(
        "config.json",
        "\"num_hidden_layers\": 3",
        "\"num_hidden_layers\": 1",
    );
    refused(
        &folder,
        ErrorKind::Unsupported,
        &["tensor model.layers.1.", "is no part of this architecture"],
    );
}

#[test]
fn what_is_wrong_with_a_configuration_is_named() {
    let folder = checkpoint("mlx-4");
    folder.edit(
        "config.json",
        "\"model_type\": \"llama\"",
        "\"model_type\": \"newest\"",
    );
    refused(
        &folder,
        ErrorKind::Unsupported,
        &[
            "stage 6 architecture",
            "\"newest\"",
            "known are llama, smollm3",
        ],
    );
    folder.edit(
        "config.json",
        "\"model_type\": \"newest\"",
        "\"model_type\": 7",
    );
    refused(
        &folder,
        ErrorKind::Format,
        &["config.json: model_type: wanted a string, found 7"],
    );

    let folder = checkpoint("mlx-4");
    folder.edit("config.json", "\"bits\": 4", "\"bits\": 8");
    refused(
        &folder,
        ErrorKind::Format,
        &[
            "stage 8 quirks",
            "tensor model.",
            "words of 8 bits in groups of 64",
        ],
    );
    folder.edit("config.json", "\"hidden_size\": 64", "\"hidden_size\": 128");
    folder.edit("config.json", "\"bits\": 8", "\"bits\": 4");
    refused(
        &folder,
        ErrorKind::Format,
        &[
            "tensor model.embed_tokens.weight is [288, 64]",
            "wants [288, 128]",
        ],
    );
}

#[test]
fn every_length_of_a_cut_file_is_refused() {
    let folder = checkpoint("mlx-4");
    let path = folder.0.join("model.safetensors");
    let whole = read(&path);
    let header = 8 + usize::from(u16::from_le_bytes([whole[0], whole[1]]));
    for length in (0..header)
        .step_by(7)
        .chain((header..whole.len()).step_by(4999))
    {
        folder.write("model.safetensors", &whole[..length]);
        let error = load(&folder.0).expect_err("cut");
        assert_eq!(error.kind(), ErrorKind::Format, "{length} bytes: {error}");
        assert!(
            error.to_string().starts_with("stage "),
            "{length} bytes: {error}"
        );
    }
}

#[test]
fn every_byte_of_configuration_and_header_may_change() {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        context: 64,
        ..LoadOptions::default()
    };
    for name in ["config.json", "model.safetensors"] {
        let folder = checkpoint("mlx-mixed");
        let mut bytes = read(&folder.0.join(name));
        // Of the tensors the header; a prime step keeps it to some hundred loads.
        let end = bytes.len().min(8 + 4000);
        for at in (0..end).step_by(11) {
            for bit in [0, 4] {
                bytes[at] ^= 1 << bit;
                folder.write(name, &bytes);
                // Many changes are harmless (a letter of a note); none may panic or abort.
                let loaded = tabla::compile(&Source::Path(folder.0.clone()), &options);
                if let Err(error) = loaded {
                    assert_ne!(error.kind(), ErrorKind::Internal, "{name} {at}: {error}");
                }
                bytes[at] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn several_tokens_end_a_text() {
    let folder = checkpoint("bf16");
    let source = Source::Path(folder.0.clone());
    let tokenizer = tabla::load_tokenizer(&source).expect("a tokenizer");
    assert_eq!(tokenizer.stops(), [2, 7]);
}

/// Greedy ids of the story model, as one file and as three.
#[test]
fn stories() {
    let reference = testdata("golden/stories260K_golden.json");
    let folders = ["stories260K-hf", "stories260K-hf-sharded"].map(testdata);
    let (Some(reference), [Some(one), Some(three)]) = (reference, folders) else {
        return;
    };
    let json: serde_json::Value = serde_json::from_slice(&read(&reference)).expect("JSON");
    let ids =
        |v: &serde_json::Value| -> Vec<u32> { serde_json::from_value(v.clone()).expect("ids") };
    for path in [one.clone(), one.join("model.safetensors"), three] {
        let options = LoadOptions {
            device: DeviceChoice::Cpu,
            precision: Precision::Exact,
            ..LoadOptions::default()
        };
        let mut s = session(&path, &options);
        for case in json["cases"].as_array().expect("cases") {
            let wanted = ids(&case["greedy"]);
            let options = tabla::GenerateOptions {
                sampling: tabla::Sampling::GREEDY,
                max_tokens: u32::try_from(wanted.len()).expect("short"),
                ..tabla::GenerateOptions::default()
            };
            let found = picks(&mut s, &ids(&case["ids"]), &options);
            assert_eq!(found, wanted, "{}", path.display());
        }
    }
}
