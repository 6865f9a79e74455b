//! The same model from every format: names, shapes, numbers and values of the golden checkpoints.

use super::hf;
use super::split::{drop_shared, split};
use super::weight::Weight;
use crate::arch::{self, Arch, Config};
use crate::format::{self, Directory, Metadata, Value};
use crate::quant::{self, Matrix};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Keys that a file may do without, as they say what others say too, or nothing.
const SPARE: &[&str] = &[
    "vocab_size",
    "rope.dimension_count",
    "rope.freq_base",
    // What follows from the lengths of the training.
    "rope.scaling.attn_factor",
    // Of a head that is left out.
    "classifier.pooling_type",
    // A second name of the other norms' number.
    "attention.layer_norm_rms_epsilon",
];

struct Model {
    file: Directory,
    arch: &'static Arch,
    permuted: bool,
    weights: BTreeMap<String, Weight>,
}

impl Model {
    fn open(path: &Path) -> Self {
        let mut file = format::open(path).unwrap();
        let folder =
            (file.kind == format::Kind::Safetensors).then(|| hf::Folder::of(&file).unwrap());
        if let Some(folder) = &folder {
            file.metadata = folder.metadata().unwrap_or_else(|e| panic!("{e}"));
        }
        let name = file.metadata.str("general.architecture").unwrap().unwrap();
        let arch = arch::find(name).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let weights = match &folder {
            Some(folder) => folder
                .weights(&file, arch)
                .unwrap_or_else(|e| panic!("{}: {e}", path.display())),
            None => (0..file.tensors.len())
                .map(|i| Weight::plain(file.tensors[i].name.clone(), &file, i).unwrap())
                .collect(),
        };
        let number = |key: &str| file.metadata.u32(&format!("{name}.{key}")).ok().flatten();
        let sizes = || {
            let (dim, heads) = (number("embedding_length")?, number("attention.head_count")?);
            let kv_heads = number("attention.head_count_kv").unwrap_or(heads);
            let head_dim = number("attention.key_length").unwrap_or(dim / heads);
            Some([heads * head_dim, kv_heads * head_dim])
        };
        let mut weights = split(weights, &file, arch, &|_| sizes().unwrap_or([0; 2])).unwrap();
        drop_shared(&mut weights, &file.metadata, arch).unwrap();
        let weights = weights.into_iter().map(|w| (w.name.clone(), w)).collect();
        Self {
            permuted: folder.is_none() && !arch.half_split,
            file,
            arch,
            weights,
        }
    }

    fn values(&self, w: &Weight) -> Vec<f32> {
        let [rows, cols] = [w.rows, w.cols].map(|n| n as usize);
        let matrix = Matrix {
            bytes: w.codes.bytes(&self.file),
            scales: w.scales(&self.file),
            rows,
            cols,
        };
        let mut all = vec![0.0; rows * cols];
        for (row, out) in all.chunks_exact_mut(cols).enumerate() {
            quant::decode_row_of(w.dtype, &matrix, row, out);
        }
        all
    }
}

/// A list of numbers for a number or a list of them; a text stands for itself.
fn numbers(value: &Value<'_>) -> Vec<f64> {
    match value {
        Value::Array(list) => list.iter().flat_map(|item| numbers(&item)).collect(),
        Value::Bool(b) => vec![f64::from(u8::from(*b))],
        Value::String(text) => text.iter().map(|b| f64::from(*b)).collect(),
        other => match other.float() {
            Some(x) => vec![f64::from(x)],
            None => vec![f64::from(other.integer::<u32>().unwrap())],
        },
    }
}

fn keys(meta: &Metadata) -> BTreeMap<String, Vec<f64>> {
    let arch = meta.str("general.architecture").unwrap().unwrap();
    let own = meta.iter().filter_map(|(key, value)| {
        let key = key.strip_prefix(arch)?.strip_prefix('.')?;
        Some((key.to_string(), numbers(&value)))
    });
    own.collect()
}

/// What the keys of a GGUF file say and the other's do not, or say otherwise.
fn differences(gguf: &Model, other: &Model) -> Vec<String> {
    let (wanted, found) = (keys(&gguf.file.metadata), keys(&other.file.metadata));
    let mut differences = Vec::new();
    for (key, mut wanted) in wanted {
        let Some(found) = found.get(&key) else {
            let nothing = wanted == [0.0];
            let none = key == "rope.scaling.type" && wanted == numbers(&Value::String(b"none"));
            if !nothing && !none && !SPARE.contains(&key.as_str()) {
                differences.push(format!("{key} is missing, wanted {wanted:?}"));
            }
            continue;
        };
        if key == "attention.sliding_window_pattern" && wanted.len() == 1 {
            let first = if gguf.arch.norms_plus_one { 1 } else { 0 };
            let every = wanted[0] as usize;
            wanted = (0..found.len())
                .map(|i| f64::from(u8::from((i + first) % every != 0)))
                .collect();
        }
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs();
        if found.len() != wanted.len() || !found.iter().zip(&wanted).all(near) {
            differences.push(format!("{key} is {found:?}, wanted {wanted:?}"));
        }
    }
    differences
}

/// The numbers that recipes see; factors of RoPE may stand in a tensor of a GGUF file.
fn facts(model: &Model) -> Vec<(&'static str, String)> {
    let c = Config::read(&model.file.metadata).unwrap();
    let c = c.validate(model.arch).unwrap();
    let ropes = c
        .ropes
        .iter()
        .map(|r| (r.dim, r.theta.to_bits(), r.magnitude()));
    vec![
        ("layers", format!("{:?}", c.blocks)),
        (
            "widths",
            format!(
                "{:?}",
                [
                    c.dim,
                    c.heads,
                    c.kv_heads,
                    c.head_dim,
                    c.ffn,
                    c.layer_embedding
                ]
            ),
        ),
        (
            "positions",
            format!("{:?}", [c.context, c.window, c.shared_kv]),
        ),
        (
            "experts",
            format!("{:?}", [c.experts, c.experts_used, c.expert_ffn]),
        ),
        ("RoPE", format!("{:?}", ropes.collect::<Vec<_>>())),
        ("eps", format!("{:?}", c.eps)),
        ("activation", format!("{:?}", c.activation)),
        (
            "scales",
            format!(
                "{:?}",
                [
                    c.embedding_scale,
                    c.residual_scale,
                    c.logit_scale,
                    c.attention_scale
                ]
            ),
        ),
        ("caps", format!("{:?}", [c.attention_cap, c.logit_cap])),
    ]
}

fn weights(gguf: &Model, other: &Model) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, wanted) in &gguf.weights {
        if name.starts_with("rope_f") {
            continue;
        }
        let other_name = if name == "output.weight" && !other.weights.contains_key(name) {
            "token_embd.weight"
        } else {
            name
        };
        let Some(found) = other.weights.get(other_name) else {
            differences.push(format!("{name} is missing"));
            continue;
        };
        let shape = |w: &Weight| [w.rows, w.cols, w.stack];
        if shape(found) != shape(wanted) {
            differences.push(format!(
                "{name} is {:?}, wanted {:?}",
                shape(found),
                shape(wanted)
            ));
            continue;
        }
        let mut values = gguf.values(wanted);
        let head = |key: &str| {
            gguf.file
                .metadata
                .u32(&format!("{}.attention.{key}", gguf.arch.name))
                .unwrap()
        };
        let module = name.rsplit('.').nth(1).unwrap_or_default();
        if gguf.permuted && ["attn_q", "attn_k"].contains(&module) {
            let heads = head(if module == "attn_q" {
                "head_count"
            } else {
                "head_count_kv"
            })
            .unwrap() as usize;
            let rows = wanted
                .rows
                .max(if wanted.rows == 1 { wanted.cols } else { 1 })
                as usize;
            let width = values.len() / rows;
            let dim = rows / heads;
            let source = |row: usize| {
                row / dim * dim + (row % dim) % (dim / 2) * 2 + (row % dim) / (dim / 2)
            };
            values = (0..rows)
                .flat_map(|row| values[source(row) * width..][..width].to_vec())
                .collect();
        }
        let worst = other
            .values(found)
            .iter()
            .zip(&values)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        if worst > 0.0 {
            differences.push(format!("{name} differs by {worst}"));
        }
    }
    let more = other
        .weights
        .keys()
        .filter(|name| !gguf.weights.contains_key(*name));
    differences.extend(more.map(|name| format!("{name} is more")));
    differences
}

#[test]
fn formats_say_the_same() {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/arch");
    let folders = std::fs::read_dir(&all).unwrap();
    let folders: std::collections::BTreeSet<PathBuf> = folders.map(|f| f.unwrap().path()).collect();
    let mut wrong = Vec::new();
    for folder in folders {
        let gguf = folder.join("model.gguf");
        for side in ["hf", "mlx"].map(|side| folder.join(side)) {
            if !gguf.is_file() || !side.is_dir() || folder.ends_with("gemma_embedding") {
                continue;
            }
            let r = std::panic::catch_unwind(|| {
                let (a, b) = (Model::open(&gguf), Model::open(&side));
                let mut d = differences(&a, &b);
                d.extend(weights(&a, &b));
                d
            });
            match r {
                Ok(d) => wrong.extend(
                    d.into_iter()
                        .map(|d| format!("{}: {d}", side.strip_prefix(&all).unwrap().display())),
                ),
                Err(_) => wrong.push(format!("{} panics", side.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
