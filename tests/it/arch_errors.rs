//! Damaged checkpoints of every architecture: what is wrong is named, and nothing else happens.

use crate::common::golden;
use crate::scratch::{Folder, Tensor, safetensors};
use std::path::{Path, PathBuf};
use tabla::dtype::DType;
use tabla::exec::cpu::Level;
use tabla::format::write::Writer;
use tabla::format::{self, Directory, Kind, TensorInfo, TensorType};
use tabla::{DeviceChoice, Error, Options, Source};

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
    let options = Options {
        device: DeviceChoice::Cpu,
        level: Some(Level::Scalar),
        threads: 1,
        context: 32,
        ..Options::default()
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

/// A value that a key gets.
#[derive(Clone, Debug)]
enum Said {
    Nothing,
    Number(u32),
    Float(f32),
    Text(&'static str),
    Numbers(Vec<u32>),
    Flags(Vec<bool>),
}
use Said::{Flags, Float, Nothing, Number, Numbers, Text};

/// Writes a GGUF file where one key says something else.
fn with_key(file: &Directory, key: &str, said: &Said, to: &Folder) -> PathBuf {
    let mut w = Writer::new();
    for (other, value) in file.metadata.iter().filter(|(other, _)| *other != key) {
        w.copy(other, value);
    }
    match said {
        Nothing => &mut w,
        Number(n) => w.set(key, *n),
        Float(n) => w.set(key, *n),
        Text(t) => w.set(key, *t),
        Numbers(list) => w.list(key, list),
        Flags(list) => w.list(key, list),
    };
    for t in &file.tensors {
        w.tensor(&t.name, t.dtype, &t.dims, file.bytes(t));
    }
    to.write("model.gguf", &w.finish().expect("it can be written"))
}

#[test]
fn explore_keys() {
    for path in checkpoints().iter().filter(|path| path.is_file()) {
        let scratch = Folder::new("errors");
        let file = directory(path);
        let name = path
            .strip_prefix(golden("arch"))
            .expect("inside")
            .display()
            .to_string();
        let arch = file
            .metadata
            .str("general.architecture")
            .unwrap()
            .unwrap()
            .to_string();
        let keys: Vec<String> = file.metadata.iter().map(|(k, _)| k.to_string()).collect();
        for key in keys.iter().filter(|k| k.starts_with(&format!("{arch}."))) {
            let text = matches!(
                file.metadata.get(key),
                Some(tabla::format::Value::String(_))
            );
            let said = if text { Number(7) } else { Text("x") };
            match load(&with_key(&file, key, &said, &scratch)) {
                Ok(()) => println!("TYPE {name} {key}"),
                Err(e) if e.to_string().contains(key) => {}
                Err(e) => println!("TYPE {name} {key}: {e}"),
            }
            match load(&with_key(&file, key, &Nothing, &scratch)) {
                Ok(()) => println!("GONE {name} {key}"),
                Err(e) if e.to_string().contains(key) => {}
                Err(e) => println!("GONE {name} {key}: {e}"),
            }
        }
        let values: Vec<(&str, Vec<Said>)> = vec![
            (
                "block_count",
                vec![
                    Number(0),
                    Number(5_000_000),
                    Number(u32::MAX),
                    Number(1),
                    Number(30),
                ],
            ),
            (
                "embedding_length",
                vec![Number(0), Number(u32::MAX), Number(2)],
            ),
            ("context_length", vec![Number(0), Number(u32::MAX)]),
            (
                "attention.head_count",
                vec![
                    Number(0),
                    Number(7),
                    Number(5000),
                    Numbers(vec![]),
                    Numbers(vec![2]),
                    Numbers(vec![0, 0, 0, 0, 0, 0]),
                    Numbers(vec![u32::MAX; 6]),
                ],
            ),
            (
                "attention.head_count_kv",
                vec![
                    Number(0),
                    Number(5),
                    Number(u32::MAX),
                    Numbers(vec![]),
                    Numbers(vec![1]),
                    Numbers(vec![0; 6]),
                ],
            ),
            (
                "feed_forward_length",
                vec![
                    Number(0),
                    Number(u32::MAX),
                    Numbers(vec![]),
                    Numbers(vec![30]),
                ],
            ),
            (
                "attention.key_length",
                vec![Number(0), Number(1), Number(3), Number(u32::MAX)],
            ),
            (
                "attention.key_length_swa",
                vec![Number(0), Number(3), Number(u32::MAX)],
            ),
            ("attention.value_length", vec![Number(4), Number(u32::MAX)]),
            (
                "attention.layer_norm_rms_epsilon",
                vec![
                    Float(f32::NAN),
                    Float(0.0),
                    Float(-1.0),
                    Float(f32::INFINITY),
                    Float(2.0),
                ],
            ),
            (
                "attention.layer_norm_epsilon",
                vec![Float(f32::NAN), Float(0.0), Float(-1.0)],
            ),
            (
                "rope.freq_base",
                vec![
                    Float(f32::NAN),
                    Float(0.0),
                    Float(-1.0),
                    Float(f32::INFINITY),
                ],
            ),
            ("rope.freq_base_swa", vec![Float(f32::NAN), Float(0.0)]),
            (
                "rope.dimension_count",
                vec![Number(3), Number(1000), Number(u32::MAX)],
            ),
            ("rope.dimension_count_swa", vec![Number(3), Number(1000)]),
            ("rope.scaling.type", vec![Text("newest")]),
            ("rope.scaling.factor", vec![Float(f32::NAN), Float(0.0)]),
            (
                "rope.scaling.attn_factor",
                vec![Float(f32::NAN), Float(0.0), Float(-1.0)],
            ),
            ("rope.scaling.original_context_length", vec![Number(0)]),
            ("hidden_activation", vec![Text("newest")]),
            ("pooling_type", vec![Number(4), Number(9)]),
            (
                "expert_used_count",
                vec![Number(0), Number(9), Number(u32::MAX)],
            ),
            (
                "expert_count",
                vec![Number(0), Number(1), Number(u32::MAX), Number(7)],
            ),
            (
                "expert_feed_forward_length",
                vec![Number(0), Number(u32::MAX)],
            ),
            (
                "attention.shared_kv_layers",
                vec![Number(5), Number(6), Number(u32::MAX), Number(4)],
            ),
            (
                "attention.sliding_window",
                vec![Number(0), Number(1 << 31), Number(u32::MAX)],
            ),
            (
                "attention.sliding_window_pattern",
                vec![
                    Number(0),
                    Number(u32::MAX),
                    Flags(vec![]),
                    Flags(vec![true]),
                ],
            ),
            ("attn_logit_softcapping", vec![Float(f32::NAN), Float(-1.0)]),
            (
                "final_logit_softcapping",
                vec![Float(f32::NAN), Float(-1.0)],
            ),
            ("attention.scale", vec![Float(f32::NAN), Float(-1.0)]),
            ("embedding_scale", vec![Float(f32::NAN), Float(0.0)]),
            ("residual_scale", vec![Float(f32::NAN), Float(0.0)]),
            ("logit_scale", vec![Float(f32::NAN), Float(0.0)]),
            ("vocab_size", vec![Number(0), Number(u32::MAX)]),
            (
                "embedding_length_per_layer_input",
                vec![Number(u32::MAX), Number(7), Number(0)],
            ),
        ];
        for (suffix, values) in values {
            let key = format!("{arch}.{suffix}");
            for said in values {
                match load(&with_key(&file, &key, &said, &scratch)) {
                    Ok(()) => println!("VALUE {name} {key} {said:?}"),
                    Err(e) if e.to_string().contains(&key) => {}
                    Err(e) => println!("VALUE {name} {key} {said:?}: {e}"),
                }
            }
        }
    }
}
