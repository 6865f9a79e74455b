//! Damaged checkpoints of every architecture: what is wrong is named, and nothing else happens.

use crate::common::golden;
use crate::scratch::{Folder, Tensor, safetensors};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use tabla::dtype::DType;
use tabla::exec::cpu::Level;
use tabla::format::write::Writer;
use tabla::format::{self, Directory, Kind, TensorInfo, TensorType};
use tabla::{DeviceChoice, Error, LoadOptions, Source};

/// Every checkpoint of `tests/golden/arch`.
fn checkpoints() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in golden("arch").read_dir().expect("a folder") {
        let folder = entry.expect("a folder").path();
        all.extend(["model.gguf", "hf"].map(|form| folder.join(form)));
    }
    all.retain(|path| path.exists() && load(path).is_ok());
    all.sort();
    all
}

fn load(path: &Path) -> Result<(), Error> {
    let options = LoadOptions {
        device: DeviceChoice::Cpu,
        level: Some(Level::Scalar),
        threads: 1,
        context: 32,
        ..LoadOptions::default()
    };
    let source = Source::Path(path.to_path_buf());
    tabla::load(&source, &options, &mut |_| {}).map(|_| ())
}

fn directory(path: &Path) -> Directory {
    format::open(path).expect("a sound file")
}

fn tensors(file: &Directory) -> Vec<(TensorInfo, Vec<u8>)> {
    let all = file.tensors.iter();
    all.map(|t| (t.clone(), file.bytes(t).to_vec())).collect()
}

/// Writes a checkpoint with other tensors beside what it had.
fn with_tensors(
    path: &Path,
    file: &Directory,
    tensors: Vec<(TensorInfo, Vec<u8>)>,
    to: &Folder,
) -> PathBuf {
    if file.kind == Kind::Gguf {
        let mut w = Writer::new();
        for (key, value) in file.metadata.iter() {
            w.copy(key, value);
        }
        for (t, bytes) in tensors {
            w.tensor(&t.name, t.dtype, &t.dims, bytes);
        }
        return to.write("model.gguf", &w.finish().expect("it can be written"));
    }
    to.copy(path);
    let rows: Vec<Tensor> = tensors
        .into_iter()
        .map(|(t, bytes)| {
            let dims = t.dims.iter().rev().copied().collect();
            (t.name, spelling(t.dtype), dims, bytes)
        })
        .collect();
    to.write("model.safetensors", &safetensors(&rows));
    to.0.clone()
}

fn spelling(dtype: TensorType) -> &'static str {
    match (dtype.known(), dtype.name()) {
        (Some(DType::F32), _) => "F32",
        (Some(DType::F16), _) => "F16",
        (Some(DType::Bf16), _) => "BF16",
        (Some(DType::I64), _) => "I64",
        (_, "u8") => "U8",
        (_, other) => panic!("{other} is in no golden file"),
    }
}

/// Whether a tensor is of the second layer, or of the only one, or outside of the layers.
fn counts(file: &Directory, name: &str) -> bool {
    let second = file.tensors.iter().any(|t| layer_of(&t.name) == Some(1));
    layer_of(name).is_none_or(|layer| layer == u32::from(second))
}

fn layer_of(name: &str) -> Option<u32> {
    let inside = ["blk.", "layers.", "layer.", "h."];
    let mut layers = inside.iter().filter_map(|part| {
        let (_, behind) = name.split_once(part)?;
        behind.split('.').next()?.parse::<u32>().ok()
    });
    layers.next()
}

/// Parts of names of tensors that a model does without, whatever they are: what guesses hidden
/// words, numbers from 0 on, masks, and eyes.
const IGNORED: [&str; 7] = [
    "pooler.",
    "position_ids",
    "h.0.attn.bias",
    "h.1.attn.bias",
    "multi_modal_projector.",
    "vision_tower.",
    "embed_vision.",
];

/// Tensors that may be absent, by the end of the checkpoint and of the name: of GGUF files nothing
/// says that there was one. Only the logits of the family tell.
const ABSENT: [(&str, &str); 3] = [
    // Without it the head is the embedding.
    ("model.gguf", "output.weight"),
    // Llama 3's rule is in no key; without it positions are not scaled.
    ("llama/model.gguf", "rope_freqs.weight"),
    // The configuration says that the head is the embedding; some files repeat it.
    ("qwen3/hf", "lm_head.weight"),
];

/// Tensors that may have more or fewer rows: only the first type of token is read, and a head that
/// is the embedding is not.
const ANY_ROWS: [&str; 3] = [
    "token_type_embeddings.weight",
    "token_types.weight",
    "lm_head.weight",
];

/// Loads what was damaged, which fails with these words.
fn refused(what: &str, path: &Path, words: &str, wrong: &mut Vec<String>) {
    match load(path) {
        Ok(()) => wrong.push(format!("{what}: it loads")),
        Err(e) if e.to_string().contains(words) => {}
        Err(e) => wrong.push(format!("{what}: {e}")),
    }
}

/// A row less, or an element of a vector: or as many as the type allows.
fn cut(tensor: &mut TensorInfo, bytes: &mut Vec<u8>) {
    let last = tensor.dims.len() - 1;
    loop {
        // Of one there is two.
        tensor.dims[last] = match tensor.dims[last] {
            1 => 2,
            n => n - 1,
        };
        let elements = tensor.dims.iter().product();
        let whole = tensor.dtype.known() != Some(DType::I2S) || elements % 128 == 0;
        let len = match tensor.dtype.known() {
            Some(dtype) => dtype.bytes(elements),
            None => Some(elements),
        };
        if let Some(len) = len.filter(|_| whole) {
            bytes.resize(usize::try_from(len).expect("small"), 1);
            return;
        }
    }
}

#[test]
fn tensors_that_are_missing_or_of_another_shape_are_named() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in checkpoints() {
        let scratch = Folder::new("errors");
        let file = directory(&path);
        let shown = path.display().to_string();
        let names = file.tensors.iter().map(|t| &t.name);
        let ignored = |name: &&String| IGNORED.iter().any(|part| name.contains(part));
        for name in names.filter(|name| counts(&file, name) && !ignored(name)) {
            count += 1;
            let mut all = tensors(&file);
            all.retain(|(t, _)| t.name != *name);
            let damaged = with_tensors(&path, &file, all, &scratch);
            let mut absent = ABSENT.iter();
            if !absent.any(|(file, tensor)| shown.ends_with(file) && name == tensor) {
                refused(
                    &format!("{shown} without {name}"),
                    &damaged,
                    name,
                    &mut wrong,
                );
            }
            let mut all = tensors(&file);
            let (tensor, bytes) = all
                .iter_mut()
                .find(|(t, _)| t.name == *name)
                .expect("there");
            cut(tensor, bytes);
            let damaged = with_tensors(&path, &file, all, &scratch);
            let free = ANY_ROWS.iter().any(|part| name.ends_with(part)) && load(&damaged).is_ok();
            if !free {
                refused(&format!("{shown}, {name} cut"), &damaged, name, &mut wrong);
            }
        }
    }
    assert!(count > 500, "{count} tensors");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_tensor_too_many_is_named() {
    let mut wrong = Vec::new();
    for path in checkpoints() {
        let scratch = Folder::new("errors");
        let file = directory(&path);
        let mut all = tensors(&file);
        let vector = |(t, _): &&(TensorInfo, Vec<u8>)| counts(&file, &t.name) && t.dims.len() == 1;
        let inside = |(t, _): &&(TensorInfo, Vec<u8>)| layer_of(&t.name).is_some();
        let found = all.iter().filter(vector).find(inside);
        let (mut more, bytes) = found.expect("a norm of layer 1").clone();
        let module = more.name.rsplit_once('.').expect("a module").0;
        more.name = format!("{module}_strange.weight");
        let name = more.name.clone();
        all.push((more, bytes));
        let damaged = with_tensors(&path, &file, all, &scratch);
        refused(&path.display().to_string(), &damaged, &name, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A value that a key gets.
#[derive(Clone, Copy, Debug)]
enum Said {
    Nothing,
    Number(u32),
    Float(f32),
    Text(&'static str),
    Numbers(&'static [u32]),
    Flags(&'static [bool]),
    /// A list of what the file says, one for each layer but the last.
    Short,
}
use Said::{Flags, Float, Nothing, Number, Numbers, Short, Text};

/// Writes a GGUF file where one key says something else.
fn with_key(file: &Directory, key: &str, said: Said, to: &Folder) -> PathBuf {
    let mut w = Writer::new();
    for (other, value) in file.metadata.iter().filter(|(other, _)| *other != key) {
        w.copy(other, value);
    }
    match said {
        Nothing => &mut w,
        Number(n) => w.set(key, n),
        Float(n) => w.set(key, n),
        Text(t) => w.set(key, t),
        Numbers(list) => w.list(key, list),
        Flags(list) => w.list(key, list),
        Short => w.list(key, &short(file, key)),
    };
    for t in &file.tensors {
        w.tensor(&t.name, t.dtype, &t.dims, file.bytes(t));
    }
    to.write("model.gguf", &w.finish().expect("it can be written"))
}

/// The numbers of all layers but the last.
fn short(file: &Directory, key: &str) -> Vec<u32> {
    let layers = file.tensors.iter().filter_map(|t| layer_of(&t.name)).max();
    let mut list = match file.metadata.u32(key) {
        Ok(number) => vec![number.expect("it is there"); 64],
        Err(_) => file.metadata.u32s(key).expect("numbers").expect("there"),
    };
    list.truncate(layers.expect("there are layers") as usize);
    list
}

/// Values that no model has, of keys that a file has.
const VALUES: &[(&str, &[Said])] = &[
    (
        "block_count",
        &[Nothing, Number(0), Number(5_000_000), Number(u32::MAX)],
    ),
    ("embedding_length", &[Nothing, Number(0), Number(u32::MAX)]),
    ("context_length", &[Nothing, Number(0), Number(u32::MAX)]),
    (
        "attention.head_count",
        &[
            Nothing,
            Number(0),
            Number(5000),
            Numbers(&[]),
            Short,
            Numbers(&[0; 8]),
        ],
    ),
    (
        "attention.head_count_kv",
        &[
            Number(7),
            Number(u32::MAX),
            Numbers(&[]),
            Short,
            Numbers(&[0; 8]),
        ],
    ),
    (
        "feed_forward_length",
        &[Nothing, Number(0), Number(u32::MAX), Numbers(&[]), Short],
    ),
    ("attention.key_length", &[Number(3), Number(u32::MAX)]),
    ("attention.key_length_swa", &[Number(3), Number(u32::MAX)]),
    ("attention.value_length", &[Number(4), Number(u32::MAX)]),
    (
        "attention.layer_norm_rms_epsilon",
        &[
            Float(f32::NAN),
            Float(0.0),
            Float(-1.0),
            Float(f32::INFINITY),
            Float(2.0),
        ],
    ),
    (
        "rope.freq_base",
        &[
            Float(f32::NAN),
            Float(0.0),
            Float(-1.0),
            Float(f32::INFINITY),
        ],
    ),
    ("rope.freq_base_swa", &[Float(f32::NAN), Float(0.0)]),
    (
        "rope.dimension_count",
        &[Number(3), Number(1000), Number(u32::MAX)],
    ),
    (
        "rope.dimension_count_swa",
        &[Number(3), Number(1000), Number(u32::MAX)],
    ),
    ("rope.scaling.type", &[Number(1), Text("newest")]),
    ("rope.scaling.attn_factor", &[Nothing, Float(f32::NAN)]),
    ("hidden_activation", &[Number(1), Text("newest")]),
    ("pooling_type", &[Number(4), Number(9)]),
    (
        "expert_used_count",
        &[Nothing, Number(0), Number(9), Number(u32::MAX)],
    ),
    ("expert_count", &[Number(u32::MAX)]),
    ("expert_feed_forward_length", &[Number(u32::MAX)]),
    (
        "attention.shared_kv_layers",
        &[Number(5), Number(6), Number(u32::MAX)],
    ),
    (
        "attention.sliding_window",
        &[Number(1 << 31), Number(u32::MAX)],
    ),
    (
        "attention.sliding_window_pattern",
        &[Flags(&[]), Flags(&[true])],
    ),
    ("attn_logit_softcapping", &[Float(f32::NAN), Float(-1.0)]),
    ("final_logit_softcapping", &[Float(f32::NAN), Float(-1.0)]),
    ("attention.scale", &[Float(f32::NAN), Float(-1.0)]),
    ("embedding_scale", &[Float(f32::NAN), Float(0.0)]),
    ("residual_scale", &[Float(f32::NAN), Float(0.0)]),
    ("logit_scale", &[Float(f32::NAN), Float(0.0)]),
    ("vocab_size", &[Number(0), Number(u32::MAX)]),
    ("embedding_length_per_layer_input", &[Number(u32::MAX)]),
];

#[test]
fn keys_that_say_what_cannot_be_are_named() {
    let mut wrong = Vec::new();
    let mut seen = HashSet::new();
    for path in checkpoints().iter().filter(|path| path.is_file()) {
        let scratch = Folder::new("errors");
        let file = directory(path);
        let arch = file.metadata.str("general.architecture").expect("a text");
        let arch = arch.expect("it is there");
        for (suffix, values) in VALUES {
            let key = format!("{arch}.{suffix}");
            // Where there are experts, nothing has that width.
            let unused = *suffix == "feed_forward_length" && arch.ends_with("moe");
            if file.metadata.get(&key).is_none() || unused {
                continue;
            }
            seen.insert(*suffix);
            let texts = [Flags(&[]), Text("x")];
            // Decoders rank by the logits of two tokens.
            let ranks = *suffix == "pooling_type" && !arch.contains("bert");
            let values = &values[usize::from(ranks)..];
            let other = usize::from(!matches!(values[values.len() - 1], Flags(_) | Text(_)));
            for said in values.iter().chain([&texts[other]]) {
                let what = format!("{}, {key} {said:?}", path.display());
                let damaged = with_key(&file, &key, *said, &scratch);
                refused(&what, &damaged, &key, &mut wrong);
            }
        }
    }
    assert_eq!(seen.len(), VALUES.len(), "{seen:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Values of `config.json` that no model has, and the key of GGUF files that is named where the
/// number is sound and too large or too small.
fn changes() -> Vec<(&'static str, Value, &'static str)> {
    let newest = json!({ "rope_type": "newest", "factor": 2.0 });
    vec![
        ("num_hidden_layers", json!(5_000_000), "4096"),
        ("num_hidden_layers", json!("2"), ""),
        ("hidden_size", json!(-1), ""),
        ("num_attention_heads", json!(1.5), ""),
        ("num_key_value_heads", json!(u32::MAX), "head_count_kv"),
        ("intermediate_size", json!(0), "feed_forward_length"),
        ("hidden_act", json!("newest"), "hidden_activation"),
        ("hidden_act", json!(3), ""),
        ("hidden_activation", json!("newest"), ""),
        ("activation_function", json!("newest"), "hidden_activation"),
        ("rms_norm_eps", json!(0.0), "layer_norm_rms_epsilon"),
        ("layer_norm_epsilon", json!("small"), ""),
        ("rope_theta", json!(-1.0), "rope.freq_base"),
        ("rope_scaling", newest.clone(), "rope.scaling.type"),
        ("rope_parameters", newest, "rope.scaling.type"),
        ("layer_types", json!(["full_attention"]), ""),
        ("sliding_window", json!(-5), ""),
        ("num_experts_per_tok", json!(9), "expert_used_count"),
        ("num_experts", json!(9), "experts.8."),
        ("num_kv_shared_layers", json!(5), "shared_kv_layers"),
        ("vocab_size", json!(4096), "a vocabulary of 4096"),
        ("model_type", json!("newest"), "architecture \"newest\""),
    ]
}

/// Keys that do not count, because the file says it elsewhere too, or nothing has that width.
const UNREAD: [(&str, &str); 3] = [
    ("bitnet/hf", "model_type"),
    ("gemma2/hf", "hidden_act"),
    ("qwen3moe/hf", "intermediate_size"),
];

#[test]
fn configurations_that_say_what_cannot_be_are_named() {
    let mut wrong = Vec::new();
    let mut seen = HashSet::new();
    for path in checkpoints().iter().filter(|path| path.is_dir()) {
        let scratch = Folder::new("errors");
        scratch.copy(path);
        let text = std::fs::read_to_string(path.join("config.json")).expect("a file");
        let config: Value = serde_json::from_str(&text).expect("JSON");
        for (key, value, other) in changes() {
            let mut changed = config.clone();
            let nested = config.get("text_config").is_some();
            let inner = if nested {
                &mut changed["text_config"]
            } else {
                &mut changed
            };
            let mut unread = UNREAD.iter();
            if inner.get(key).is_none_or(Value::is_null)
                || unread.any(|(folder, unread)| path.ends_with(folder) && *unread == key)
            {
                continue;
            }
            seen.insert(key);
            inner[key] = value.clone();
            scratch.write("config.json", changed.to_string().as_bytes());
            let what = format!("{}, {key}: {value}", path.display());
            match load(&scratch.0) {
                Err(e) if e.to_string().contains(&format!("{key}: ")) => {}
                Err(e) if !other.is_empty() && e.to_string().contains(other) => {}
                Err(e) => wrong.push(format!("{what}: {e}")),
                Ok(()) => wrong.push(format!("{what}: it loads")),
            }
        }
    }
    let all: HashSet<_> = changes().into_iter().map(|(key, ..)| key).collect();
    assert_eq!(seen, all, "every key is in a file");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
