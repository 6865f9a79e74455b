//! The same model in every format: numbers, names, shapes and values of the golden checkpoints.

use super::hf;
use super::quantize::{Export, Quantize, export, quantize};
use super::source::Source;
use super::split::{drop_shared, split};
use super::weight::Weight;
use crate::arch::{self, Arch, Config};
use crate::dtype::DType;
use crate::error::ErrorKind;
use crate::format::{self, Directory, Metadata, Value};
use crate::quant::{self, Matrix};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Keys of GGUF files that a configuration may do without.
const SPARE: &[&str] = &[
    // Tensors and other keys say it too.
    "vocab_size",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.attn_factor",
    // A second name of the other norms' number, and a head that is left out.
    "attention.layer_norm_rms_epsilon",
    "classifier.pooling_type",
    // Said by modules beside a checkpoint, which some lack.
    "pooling_type",
];

/// A model of any format, as far as its catalog.
struct Model {
    file: Directory,
    arch: &'static Arch,
    config: Config,
    /// Whether rows of Q and K lie as adjacent pairs want them.
    permuted: bool,
    weights: BTreeMap<String, Weight>,
}

impl Model {
    /// `None` for an architecture that is not built.
    fn open(path: &Path) -> Option<Self> {
        let mut file = format::open(path).unwrap();
        let safetensors = file.kind == format::Kind::Safetensors;
        let folder = safetensors.then(|| hf::Folder::of(&file).unwrap());
        if let Some(folder) = &folder {
            file.metadata = folder.metadata().unwrap();
        }
        let config = Config::read(&file.metadata).unwrap();
        let arch = arch::find(&config.architecture).ok()?;
        let config = config.validate(arch).unwrap();
        let all = match &folder {
            Some(folder) => folder.weights(&file, arch).unwrap(),
            None => (0..file.tensors.len())
                .map(|i| Weight::plain(file.tensors[i].name.clone(), &file, i).unwrap())
                .collect(),
        };
        let rows = |layer: u32| {
            let block = config.blocks[layer as usize];
            [block.q_dim(), block.kv_dim()]
        };
        let mut all = split(all, &file, arch, &rows).unwrap();
        drop_shared(&mut all, &file.metadata, arch).unwrap();
        let weights = all.into_iter().map(|w| (w.name.clone(), w)).collect();
        Some(Self {
            permuted: folder.is_none() && !arch.half_split,
            file,
            arch,
            config,
            weights,
        })
    }

    /// All elements, rows of Q and K as halves want them.
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
        let module = w.name.rsplit('.').nth(1).unwrap_or_default();
        if !self.permuted || !["attn_q", "attn_k"].contains(&module) {
            return all;
        }
        // A bias has an element for each row.
        let [rows, width] = if rows == 1 { [cols, 1] } else { [rows, cols] };
        let head = self.config.head_dim as usize;
        let source = |row: usize| {
            let at = row % head;
            row - at + at % (head / 2) * 2 + at / (head / 2)
        };
        let turned = (0..rows).flat_map(|row| &all[source(row) * width..][..width]);
        turned.copied().collect()
    }

    /// The numbers that recipes see. Factors of RoPE stand in a tensor of GGUF files.
    fn facts(&self) -> [(&'static str, String); 7] {
        let c = &self.config;
        let ropes = c.ropes.iter().map(|r| (r.dim, r.theta, r.magnitude()));
        let widths = [c.dim, c.heads, c.kv_heads, c.head_dim, c.ffn];
        let counts = [c.context, c.window, c.shared_kv, c.layer_embedding];
        let experts = (c.experts, c.experts_used, c.expert_ffn, c.expert_norm);
        let scales = [
            c.embedding_scale,
            c.residual_scale,
            c.logit_scale,
            c.attention_scale,
            c.attention_cap,
            c.logit_cap,
            c.eps,
        ];
        [
            ("layers", format!("{:?}", c.blocks)),
            ("widths", format!("{widths:?}")),
            ("counts", format!("{counts:?}")),
            ("experts", format!("{experts:?}")),
            ("RoPE", format!("{:?}", ropes.collect::<Vec<_>>())),
            ("activation", format!("{:?}", c.activation)),
            ("scales", format!("{scales:?}")),
        ]
    }
}

/// A number, those of a list, or the bytes of a text.
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

/// The architecture's own keys.
fn keys(meta: &Metadata) -> BTreeMap<&str, Vec<f64>> {
    let arch = meta.str("general.architecture").unwrap().unwrap();
    let own = meta.iter().filter_map(|(key, value)| {
        let key = key.strip_prefix(arch)?.strip_prefix('.')?;
        Some((key, numbers(&value)))
    });
    own.collect()
}

/// What a checkpoint says otherwise than the GGUF file, or not at all.
fn other_numbers(gguf: &Model, other: &Model) -> Vec<String> {
    let (wanted, found) = (keys(&gguf.file.metadata), keys(&other.file.metadata));
    let none = numbers(&Value::String(b"none"));
    let mut differences = Vec::new();
    for (key, wanted) in wanted {
        // The configuration holds one against the other: a number may stand for a list.
        if key == "attention.sliding_window_pattern" {
            continue;
        }
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs();
        match found.get(key) {
            None if wanted == [0.0] || wanted == none || SPARE.contains(&key) => {}
            Some(found) if found.len() == wanted.len() && found.iter().zip(&wanted).all(near) => {}
            found => differences.push(format!("{key} is {found:?}, wanted {wanted:?}")),
        }
    }
    for ((what, wanted), (_, found)) in gguf.facts().into_iter().zip(other.facts()) {
        if wanted != found {
            differences.push(format!("{what}: {found}, wanted {wanted}"));
        }
    }
    differences
}

/// Values as far as they go where one side has rounded them to F16.
fn rounded(mut values: Vec<f32>, types: &[DType]) -> Vec<f32> {
    if types.contains(&DType::F16) {
        let nearest = |x: &mut f32| *x = half::f16::from_f32(*x).to_f32();
        values.iter_mut().for_each(nearest);
    }
    values
}

/// Weights that a checkpoint has otherwise than the GGUF file, not at all, or beyond it.
fn other_weights(gguf: &Model, other: &Model) -> Vec<String> {
    let mut differences = Vec::new();
    let of_recipes = gguf
        .weights
        .iter()
        .filter(|(name, _)| !name.starts_with("rope_f"));
    for (name, wanted) in of_recipes {
        // A tied head is a copy in some GGUF files.
        let tied = name == "output.weight" && !other.weights.contains_key(name);
        let name = if tied { "token_embd.weight" } else { name };
        let Some(found) = other.weights.get(name) else {
            differences.push(format!("{name} is missing"));
            continue;
        };
        let types = [found.dtype, wanted.dtype];
        let shape = |w: &Weight| [w.rows, w.cols, w.stack];
        if shape(found) != shape(wanted) {
            let shapes = [found, wanted].map(shape);
            differences.push(format!("{name} is {:?}, wanted {:?}", shapes[0], shapes[1]));
        } else if rounded(other.values(found), &types) != rounded(gguf.values(wanted), &types) {
            differences.push(format!("{name} has other values"));
        }
    }
    let more = other
        .weights
        .keys()
        .filter(|name| !gguf.weights.contains_key(*name));
    differences.extend(more.map(|name| format!("{name} is too much")));
    differences
}

/// Holds a checkpoint against the GGUF file of the same model.
#[track_caller]
fn compare(gguf: &Model, other: &Model, what: &str) {
    assert_eq!(gguf.arch.name, other.arch.name, "{what}");
    let mut differences = other_numbers(gguf, other);
    differences.extend(other_weights(gguf, other));
    let text = differences.join("\n");
    assert!(differences.is_empty(), "{what}:\n{text}");
}

/// The golden checkpoints of all architectures that are built, and their GGUF files.
fn goldens() -> Vec<(PathBuf, Model)> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/arch");
    let folders = std::fs::read_dir(all).unwrap().map(|f| f.unwrap().path());
    let with_gguf = folders.filter_map(|folder| {
        let gguf = folder.join("model.gguf");
        let model = gguf.is_file().then(|| Model::open(&gguf)).flatten()?;
        Some((folder, model))
    });
    let found: Vec<_> = with_gguf.collect();
    assert!(!found.is_empty(), "no golden checkpoints");
    found
}

#[test]
fn formats_say_the_same() {
    for (folder, gguf) in goldens() {
        let sides = ["hf", "mlx"].map(|side| folder.join(side));
        for side in sides.iter().filter(|side| side.is_dir()) {
            let other = Model::open(side).expect("as the GGUF file");
            compare(&gguf, &other, &side.display().to_string());
        }
    }
}

#[test]
fn what_is_written_says_the_same() {
    let (mut written_count, mut exported_count) = (0, 0);
    for (folder, gguf) in goldens() {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let out = std::env::temp_dir().join(format!("tabla-parity-{}-{name}", std::process::id()));
        let written = out.with_extension("gguf");
        let how = Quantize {
            mix: None,
            output: None,
            embedding: None,
            choose: &|_| None,
            importance: None,
            threads: 1,
        };
        let mut go_on = |_, _| ControlFlow::Continue(());
        let from = |path: &Path| Source::Path(path.to_path_buf());
        let hf = folder.join("hf");
        if !hf.is_dir() {
            continue;
        }
        match quantize(&from(&hf), &written, &how, &mut go_on) {
            Ok(_) => written_count += 1,
            // Not every tokenizer is told in keys of GGUF.
            Err(e) => {
                let tokenizer = e.message().starts_with("tokenizer.json");
                assert!(tokenizer, "{name}: {e}");
                continue;
            }
        }
        let file = Model::open(&written).expect("as it was");
        compare(&file, &Model::open(&hf).expect("as it was"), name);
        match export(&from(&written), &out, &Export::default(), &mut go_on) {
            Ok(_) => {
                exported_count += 1;
                compare(&gguf, &Model::open(&out).expect("as it was"), name);
                std::fs::remove_dir_all(out).unwrap();
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unsupported, "{name}: {e}");
                assert!(gguf.arch.classes.is_empty(), "{name}: {e}");
            }
        }
        std::fs::remove_file(written).unwrap();
    }
    assert!(written_count > exported_count && exported_count > 0);
}
