//! Loading damaged checkpoints of every architecture fails with an error that names the problem.

mod config;

use crate::common::golden;
use crate::temp_folder::{Folder, Tensor, safetensors};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use tabla::dtype::DType;
use tabla::exec::cpu::Level;
use tabla::format::write::Writer;
use tabla::format::{self, Directory, Kind, TensorInfo, TensorType};
use tabla::load::{DeviceChoice, LoadOptions};
use tabla::{Error, Model, Source};

/// Returns all loadable checkpoints of `tests/golden/arch`.
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
    let options = LoadOptions::default()
        .device(DeviceChoice::Cpu)
        .level(Level::Scalar)
        .threads(1)
        .max_context(32);
    let source = Source::Path(path.to_path_buf());
    Model::builder(source).options(options).load().map(|_| ())
}

fn directory(path: &Path) -> Directory {
    format::open(path).expect("a valid file")
}

fn tensors(file: &Directory) -> Vec<(TensorInfo, Vec<u8>)> {
    let all = file.tensors.iter();
    all.map(|t| (t.clone(), file.bytes(t).to_vec())).collect()
}

/// Writes a checkpoint with other tensors.
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
        return to.write("model.gguf", &w.finish().expect("encodes the file"));
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
        (_, other) => panic!("unexpected type {other} in a golden file"),
    }
}

/// Returns whether to test a tensor: tensors of one layer and outside of the layers.
fn is_tested(file: &Directory, name: &str) -> bool {
    let second = file.tensors.iter().any(|t| layer_of(&t.name) == Some(1));
    layer_of(name).is_none_or(|layer| layer == u32::from(second))
}

fn layer_of(name: &str) -> Option<u32> {
    let inside = ["blk.", "layers.", "layer.", "h."];
    let mut layers = inside.iter().filter_map(|part| {
        let (_, rest) = name.split_once(part)?;
        rest.split('.').next()?.parse::<u32>().ok()
    });
    layers.next()
}

/// Name parts of ignored tensors: pretraining heads, position ids, masks, vision encoders, layers that predict
/// later tokens.
const IGNORED: [&str; 11] = [
    "pooler.",
    "position_ids",
    "h.0.attn.bias",
    "h.1.attn.bias",
    "multi_modal_projector.",
    "vision_tower.",
    "embed_vision.",
    "audio_tower.",
    "embed_audio.",
    "visual.",
    "mtp.",
];

/// Layers that predict later tokens, by suffix of the checkpoint path.
const PREDICTING: [(&str, &str); 3] = [
    ("deepseek_v3/hf", "layers.3."),
    ("glm4_moe_lite/hf", "layers.3."),
    ("glm4_moe_lite/model.gguf", "blk.3."),
];

/// Optional tensors, by suffix of the checkpoint path and tensor name. Their absence can only be
/// detected in the logits.
const OPTIONAL: [(&str, &str); 6] = [
    // Without it the output projection is tied to the embedding.
    ("model.gguf", "output.weight"),
    // Llama 3's RoPE scaling is in no GGUF key.
    ("llama/model.gguf", "rope_freqs.weight"),
    // A copy of the embedding; the configuration ties them.
    ("qwen3/hf", "lm_head.weight"),
    // Models without a bias of the logits have the same layers.
    ("phimoe/model.gguf", "output.bias"),
    ("phimoe/hf", "lm_head.bias"),
    // The only layer with experts; without biases they are selected by their scores.
    (
        "nemotron_h_mixed/hf",
        "backbone.layers.1.mixer.gate.e_score_correction_bias",
    ),
];

/// Tensors with any number of rows: only token type 0 is used, and a tied head is not used.
const ANY_ROWS: [&str; 3] = [
    "token_type_embeddings.weight",
    "token_types.weight",
    "lm_head.weight",
];

/// Loads a damaged checkpoint and records a failure unless the error contains `part`.
fn expect_error(label: &str, path: &Path, part: &str, failures: &mut Vec<String>) {
    match load(path) {
        Ok(()) => failures.push(format!("{label}: loads without an error")),
        Err(e) if e.to_string().contains(part) => {}
        Err(e) => failures.push(format!("{label}: {e}")),
    }
}

/// Changes the last dimension to the next valid size.
fn resize(tensor: &mut TensorInfo, bytes: &mut Vec<u8>) {
    let last = tensor.dims.len() - 1;
    loop {
        // A single row becomes two.
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
fn names_missing_tensors_and_wrong_shapes() {
    let mut failures = Vec::new();
    let mut count = 0;
    for path in checkpoints() {
        let scratch = Folder::new("errors");
        let file = directory(&path);
        let shown = path.display().to_string();
        let names = file.tensors.iter().map(|t| &t.name);
        let predicting = PREDICTING.iter().filter(|(file, _)| shown.ends_with(file));
        let parts = IGNORED.iter().chain(predicting.map(|(_, part)| part));
        let parts: Vec<_> = parts.collect();
        let ignored = |name: &&String| parts.iter().any(|part| name.contains(**part));
        for name in names.filter(|name| is_tested(&file, name) && !ignored(name)) {
            count += 1;
            let mut all = tensors(&file);
            all.retain(|(t, _)| t.name != *name);
            let damaged = with_tensors(&path, &file, all, &scratch);
            let mut optional = OPTIONAL.iter();
            if !optional.any(|(file, tensor)| shown.ends_with(file) && name == tensor) {
                let label = format!("{shown} without {name}");
                expect_error(&label, &damaged, name, &mut failures);
            }
            let mut all = tensors(&file);
            let (tensor, bytes) = all
                .iter_mut()
                .find(|(t, _)| t.name == *name)
                .expect("the tensor exists");
            resize(tensor, bytes);
            let damaged = with_tensors(&path, &file, all, &scratch);
            let any = ANY_ROWS.iter().any(|part| name.ends_with(part)) && load(&damaged).is_ok();
            if !any {
                let label = format!("{shown}, {name} resized");
                expect_error(&label, &damaged, name, &mut failures);
            }
        }
    }
    assert!(count > 500, "{count} tensors");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn names_unexpected_tensors() {
    let mut failures = Vec::new();
    for path in checkpoints() {
        let scratch = Folder::new("errors");
        let file = directory(&path);
        let mut all = tensors(&file);
        let vector =
            |(t, _): &&(TensorInfo, Vec<u8>)| is_tested(&file, &t.name) && t.dims.len() == 1;
        let inside = |(t, _): &&(TensorInfo, Vec<u8>)| layer_of(&t.name).is_some();
        let norm = all.iter().filter(vector).find(inside);
        let (mut extra, bytes) = norm.expect("a norm of a layer").clone();
        let module = extra.name.rsplit_once('.').expect("a module").0;
        extra.name = format!("{module}_strange.weight");
        let name = extra.name.clone();
        all.push((extra, bytes));
        let damaged = with_tensors(&path, &file, all, &scratch);
        expect_error(&path.display().to_string(), &damaged, &name, &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A replacement value of a key.
#[derive(Clone, Copy, Debug)]
enum KeyValue {
    Absent,
    Number(u32),
    Float(f32),
    Text(&'static str),
    Numbers(&'static [u32]),
    Flags(&'static [bool]),
    /// A list of the original value, with one element less than layers.
    Short,
}
use KeyValue::{Absent, Flags, Float, Number, Numbers, Short, Text};

/// Writes a GGUF file with another value of one key.
fn with_key(file: &Directory, key: &str, value: KeyValue, to: &Folder) -> PathBuf {
    let mut w = Writer::new();
    for (other, original) in file.metadata.iter().filter(|(other, _)| *other != key) {
        w.copy(other, original);
    }
    match value {
        Absent => &mut w,
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
    to.write("model.gguf", &w.finish().expect("encodes the file"))
}

/// Returns the values of all layers except the last.
fn short(file: &Directory, key: &str) -> Vec<u32> {
    let layers = file.tensors.iter().filter_map(|t| layer_of(&t.name)).max();
    let mut list = match file.metadata.u32(key) {
        Ok(number) => vec![number.expect("the key exists"); 64],
        Err(_) => file
            .metadata
            .u32s(key)
            .expect("a list of numbers")
            .expect("the key exists"),
    };
    let arch = key.split('.').next().expect("a prefix");
    let beyond = file.metadata.u32(&format!("{arch}.nextn_predict_layers"));
    let beyond = beyond.expect("a number").unwrap_or(0);
    list.truncate((layers.expect("the file has layers") - beyond) as usize);
    list
}

/// Invalid values of keys.
const VALUES: &[(&str, &[KeyValue])] = &[
    (
        "block_count",
        &[Absent, Number(0), Number(5_000_000), Number(u32::MAX)],
    ),
    ("embedding_length", &[Absent, Number(0), Number(u32::MAX)]),
    ("context_length", &[Absent, Number(0), Number(u32::MAX)]),
    (
        "attention.head_count",
        &[
            Absent,
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
        &[Absent, Number(0), Number(u32::MAX), Numbers(&[]), Short],
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
    ("rope.scaling.attn_factor", &[Absent, Float(f32::NAN)]),
    ("hidden_activation", &[Number(1), Text("newest")]),
    ("pooling_type", &[Number(4), Number(9)]),
    ("classifier.pooling_type", &[Number(0), Number(3)]),
    (
        "expert_used_count",
        &[Absent, Number(0), Number(10), Number(u32::MAX)],
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
    ("ssm.conv_kernel", &[Absent, Number(0), Number(9)]),
    ("ssm.state_size", &[Absent, Number(0), Number(257)]),
    ("ssm.group_count", &[Absent, Number(0), Number(7)]),
    ("ssm.time_step_rank", &[Absent, Number(u32::MAX)]),
    ("ssm.inner_size", &[Absent, Number(0), Number(u32::MAX)]),
    ("attention.recurrent_layers", &[Flags(&[]), Flags(&[true])]),
];

/// Keys that are not used, by part of the checkpoint path: of RoPE that no layer has, of experts and states that the
/// model does not have.
const UNREAD_KEYS: [(&str, &str); 6] = [
    ("granite_hybrid/", "rope.dimension_count"),
    ("granite_hybrid_moe/", "rope.dimension_count"),
    ("nemotron_h", "rope.dimension_count"),
    ("granite_hybrid/", "expert_used_count"),
    ("granite_hybrid_attention/", "expert_used_count"),
    ("granite_hybrid_attention/", "ssm."),
];

#[test]
fn names_keys_with_invalid_values() {
    let mut failures = Vec::new();
    let mut seen = HashSet::new();
    for path in checkpoints().iter().filter(|path| path.is_file()) {
        let scratch = Folder::new("errors");
        let file = directory(path);
        let arch = file.metadata.str("general.architecture").expect("a string");
        let arch = arch.expect("the key exists");
        for (suffix, values) in VALUES {
            let key = format!("{arch}.{suffix}");
            // Models with a width of experts may have no dense layers.
            let width = format!("{arch}.expert_feed_forward_length");
            let shown = path.display().to_string();
            let is_unread =
                |(part, key): &(&str, &str)| shown.contains(part) && suffix.starts_with(key);
            let unused = *suffix == "feed_forward_length" && file.metadata.get(&width).is_some()
                || UNREAD_KEYS.iter().any(is_unread);
            if file.metadata.get(&key).is_none() || unused {
                continue;
            }
            seen.insert(*suffix);
            let texts = [Flags(&[]), Text("x")];
            // Decoders rank by the logits of two tokens.
            let ranks = *suffix == "pooling_type" && !arch.contains("bert");
            let values = &values[usize::from(ranks)..];
            let other = usize::from(!matches!(values[values.len() - 1], Flags(_) | Text(_)));
            for value in values.iter().chain([&texts[other]]) {
                let label = format!("{}, {key} {value:?}", path.display());
                let damaged = with_key(&file, &key, *value, &scratch);
                expect_error(&label, &damaged, &key, &mut failures);
            }
        }
    }
    assert_eq!(seen.len(), VALUES.len(), "{seen:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Invalid keys of experts, and a part of the error message.
const EXPERT_KEYS: &[(&str, KeyValue, &str)] = &[
    (
        "expert_gating_func",
        Number(9),
        "llama.expert_gating_func: unknown router function 9; supported are 1 (softmax), 2 (sigmoid)",
    ),
    ("expert_gating_func", Text("newest"), "expert_gating_func"),
    (
        "expert_group_count",
        Number(3),
        "llama.expert_group_count: expected at most 64 equal groups of at least 1 of 8 experts, got 3",
    ),
    (
        "expert_group_count",
        Number(4),
        "llama.expert_group_used_count: expected 1 to 4, got 0",
    ),
    (
        "expert_weights_scale",
        Float(-1.0),
        "llama.expert_weights_scale: expected a positive number, got -1",
    ),
    ("expert_weights_norm", Number(1), "expert_weights_norm"),
    (
        "expert_shared_count",
        Number(1),
        "ffn_gate_shexp.weight is missing",
    ),
    (
        "leading_dense_block_count",
        Number(1),
        "tensor blk.0.ffn_gate.weight is missing",
    ),
    (
        "expert_count",
        Short,
        "llama.expert_count has 1 values, but layer 1 needs one",
    ),
    (
        "expert_count",
        Numbers(&[8, 7]),
        "blk.1.ffn_gate_inp.weight: expected shape [7, 36]",
    ),
];

#[test]
fn names_keys_of_experts_with_invalid_values() {
    let path = golden("arch").join("mixtral/model.gguf");
    let (file, scratch) = (directory(&path), Folder::new("errors"));
    let mut failures = Vec::new();
    for (suffix, value, part) in EXPERT_KEYS {
        let key = format!("llama.{suffix}");
        let damaged = with_key(&file, &key, *value, &scratch);
        expect_error(&format!("{key} {value:?}"), &damaged, part, &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
