//! Tests that a model loads identically from GGUF, Hugging Face and MLX: hyperparameters, names,
//! shapes and values of the golden checkpoints.

use super::quantize::{ExportOptions, QuantizeOptions, export, quantize};
use crate::arch::{self, Arch, Config};
use crate::dtype::DType;
use crate::error::ErrorKind;
use crate::format::{self, Directory, Metadata, Value};
use crate::load::catalog::EXPERT_BIASES;
use crate::load::collect::check_pooler;
use crate::load::hf;
use crate::load::recurrent;
use crate::load::source::Source;
use crate::load::split::{drop_beyond, drop_shared, split};
use crate::load::weight::Weight;
use crate::quant::{self, Matrix};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// GGUF keys that a checkpoint may lack.
const OPTIONAL_KEYS: &[&str] = &[
    // Layers that predict later tokens.
    "nextn_predict_layers",
    // Images only.
    "rope.dimension_sections",
    // Redundant with tensors and other keys.
    "expert_feed_forward_length",
    "full_attention_interval",
    "vocab_size",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.attn_factor",
    // An alias of the layer norm epsilon.
    "attention.layer_norm_rms_epsilon",
    // Of a classification head that this file lacks.
    "classifier.pooling_type",
    // From module files of a checkpoint, which some lack.
    "pooling_type",
];

/// A model of any format, with hyperparameters and weights.
#[expect(clippy::struct_excessive_bools, reason = "independent properties")]
struct Model {
    file: Directory,
    arch: &'static Arch,
    config: Config,
    /// Whether rows of Q and K are permuted for RoPE on adjacent pairs.
    permuted: bool,
    /// Whether weights are products with the multipliers of a folder.
    has_products: bool,
    weights: BTreeMap<String, Weight>,
}

impl Model {
    /// Opens a model; `None` for an unsupported architecture.
    fn open(path: &Path) -> Option<Self> {
        let mut file = format::open(path).unwrap();
        let safetensors = file.kind == format::Kind::Safetensors;
        let folder = safetensors.then(|| hf::Folder::of(&file).unwrap());
        if let Some(folder) = &folder {
            file.metadata = folder.metadata().unwrap();
            folder.add_dense_modules(&mut file).unwrap();
        }
        let config = Config::read(&file.metadata).unwrap();
        let arch = arch::find(&config.architecture).ok()?;
        let mut config = config.validate(arch).unwrap();
        if folder.is_none() {
            check_pooler(&file, arch).ok()?;
        }
        let all = match &folder {
            Some(folder) => folder.weights(&file, arch).unwrap(),
            None => (0..file.tensors.len())
                .map(|i| Weight::plain(file.tensors[i].name.clone(), &file, i).unwrap())
                .collect(),
        };
        let rows = |layer: u32| {
            let layer = &config.layer_configs[layer as usize];
            [layer.q_dim(), layer.kv_dim()]
        };
        let all = split(all, &file, arch, &rows).unwrap();
        let mut all = drop_shared(all, &file.metadata, arch).unwrap();
        if config.predict_layers > 0 {
            all = drop_beyond(all, config.layers);
        }
        all.iter_mut().for_each(recurrent::unify);
        all = recurrent::split_by_key_head(all, &config, &file).unwrap();
        if all.iter().any(|w| w.name.ends_with(EXPERT_BIASES)) {
            config.complete_biased_router();
        }
        let weights = all.into_iter().map(|w| (w.name.clone(), w)).collect();
        Some(Self {
            permuted: folder.is_none() && arch.permutes_heads(),
            has_products: false,
            file,
            arch,
            config,
            weights,
        })
    }

    /// Decodes all elements, with rows of Q and K in half-split order.
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
        let interleaved = self.arch.interleaved_heads;
        if let Some(delta) = self
            .config
            .recurrent
            .and_then(|recurrent| recurrent.delta())
            .filter(|delta| interleaved && !delta.at.interleaved)
        {
            let [of_rows, of_cols] = recurrent::value_head_order(&w.name, &delta);
            // A vector has an element for each row.
            let [rows, cols] = if rows == 1 { [cols, 1] } else { [rows, cols] };
            let ordered =
                |row: usize| (0..cols).map(move |col| (of_rows.source(row), of_cols.source(col)));
            let all = (0..rows)
                .flat_map(ordered)
                .map(|(row, col)| all[row * cols + col]);
            return all.collect();
        }
        let module = w.name.rsplit('.').nth(1).unwrap_or_default();
        if !self.permuted || !["attn_q", "attn_k"].contains(&module) {
            return all;
        }
        // A bias has an element for each row.
        let [rows, width] = if rows == 1 { [cols, 1] } else { [rows, cols] };
        let head = self.config.attention.head_dim as usize;
        let source = |row: usize| {
            let at = row % head;
            row - at + at % (head / 2) * 2 + at / (head / 2)
        };
        let half_split = (0..rows).flat_map(|row| &all[source(row) * width..][..width]);
        half_split.copied().collect()
    }

    /// Returns the hyperparameters that recipes use. GGUF stores RoPE factors in a tensor.
    fn facts(&self) -> [(&'static str, String); 9] {
        let c = &self.config;
        let (a, e, ropes) = (&c.attention, &c.experts, c.rope.rotations.iter());
        let ropes = ropes.map(|r| (r.dim, r.theta, r.magnitude()));
        let widths = [c.dim, a.heads, a.kv_heads, a.head_dim, c.ffn.width];
        let counts = [c.context, a.window, a.shared_kv, c.layer_embeddings.width];
        let experts = (e.count, e.width, e.router, e.shared_width);
        // GGUF files have a tenth of a factor that folders have.
        let attention_scale = match a.latent {
            Some(_) => (a.scale * 1e6).round() / 1e6,
            None => a.scale,
        };
        let mut recurrent = c.recurrent;
        if let Some(arch::Recurrent::DeltaNet(delta)) = &mut recurrent {
            // The order of heads, which differs between files.
            delta.at.interleaved = false;
        }
        let scales = [
            c.scales.embedding,
            c.scales.residual,
            c.output.logit_scale,
            attention_scale,
            c.attention.cap,
            c.output.logit_cap,
            c.eps,
        ];
        [
            ("layers", format!("{:?}", c.layer_configs)),
            ("widths", format!("{widths:?}")),
            ("counts", format!("{counts:?}")),
            ("experts", format!("{experts:?}")),
            ("RoPE", format!("{:?}", ropes.collect::<Vec<_>>())),
            ("activation", format!("{:?}", c.ffn.activation)),
            ("scales", format!("{scales:?}")),
            ("recurrent", format!("{recurrent:?}")),
            ("latent", format!("{:?}", c.attention.latent)),
        ]
    }
}

/// Converts a number, a list or the bytes of a text to numbers.
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

/// Returns the keys of the architecture.
fn keys(meta: &Metadata) -> BTreeMap<&str, Vec<f64>> {
    let arch = meta.str("general.architecture").unwrap().unwrap();
    let own = meta.iter().filter_map(|(key, value)| {
        let key = key.strip_prefix(arch)?.strip_prefix('.')?;
        Some((key, numbers(&value)))
    });
    own.collect()
}

/// Lists hyperparameters of a checkpoint that differ from the GGUF file or are missing.
fn config_differences(gguf: &Model, other: &Model) -> Vec<String> {
    let (expected, actual) = (keys(&gguf.file.metadata), keys(&other.file.metadata));
    let none = numbers(&Value::String(b"none"));
    let mut differences = Vec::new();
    let hybrid = is_without_rope(gguf);
    for (key, expected) in expected {
        if is_unused(gguf, key) {
            continue;
        }
        // Numbers or lists; compared below as part of the layers.
        let of_layers = [
            "attention.sliding_window_pattern",
            "attention.recurrent_layers",
            "attention.head_count_kv",
            "block_count",
        ];
        if of_layers.contains(&key) {
            continue;
        }
        let near = |(a, b): (&f64, &f64)| a == b || (a - b).abs() <= 1e-6 * b.abs();
        match actual.get(key) {
            None if expected == [0.0] || expected == none || OPTIONAL_KEYS.contains(&key) => {}
            Some(actual)
                if actual.len() == expected.len() && actual.iter().zip(&expected).all(near) => {}
            actual => differences.push(format!("{key}: expected {expected:?}, got {actual:?}")),
        }
    }
    for ((name, expected), (_, actual)) in gguf.facts().into_iter().zip(other.facts()) {
        let unused = hybrid && ["counts", "RoPE"].contains(&name);
        let folded = has_multipliers(other) && ["scales", "recurrent"].contains(&name);
        if expected != actual && !unused && !folded {
            differences.push(format!("{name}: expected {expected}, got {actual}"));
        }
    }
    differences
}

/// Returns whether the model has recurrent layers and attention without RoPE. GGUF files of such models have another
/// context length, keys of RoPE that nothing uses, and permuted heads, which makes no difference.
fn is_without_rope(model: &Model) -> bool {
    let c = &model.config;
    c.recurrent.is_some() && c.layer_configs.iter().all(|layer| layer.rope.is_none())
}

/// Returns whether the folder has multipliers of projections, which GGUF files have in their weights.
fn has_multipliers(model: &Model) -> bool {
    !model.config.scales.projections.is_empty()
}

/// Returns whether the GGUF file has a key that its model does not use.
fn is_unused(gguf: &Model, key: &str) -> bool {
    let c = &gguf.config;
    match key {
        "context_length" => is_without_rope(gguf),
        "expert_shared_feed_forward_length" => c.experts.count == 0,
        "expert_group_count" | "expert_group_used_count" => c.experts.router.groups == 1,
        // Without a list of layers, all have RoPE.
        "rope.scaling.finetuned" => c.layer_configs.iter().all(|layer| layer.rope.is_some()),
        other => other.starts_with("ssm.") && c.recurrent.is_none(),
    }
}

/// Returns whether values of a weight of `model` are equal to those of another file. The last bit may differ of decay
/// rates, which are exponentials, and of products with two multipliers, of which other programs compute one after the
/// other.
fn are_equal(model: &Model, name: &str, a: &[f32], b: &[f32]) -> bool {
    if !name.ends_with(".ssm_a") && !model.has_products {
        return a == b;
    }
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-7 * b.abs();
    a.len() == b.len() && a.iter().zip(b).all(near)
}

/// Returns the rows of a matrix in ascending order.
fn sorted_rows(values: &[f32], cols: u32) -> Vec<&[f32]> {
    let mut rows: Vec<_> = values.chunks_exact(cols as usize).collect();
    rows.sort_by(|a, b| a.partial_cmp(b).unwrap());
    rows
}

/// Rounds values to F16 if one side is F16.
fn rounded(mut values: Vec<f32>, types: &[DType]) -> Vec<f32> {
    if types.contains(&DType::F16) {
        let nearest = |x: &mut f32| *x = half::f16::from_f32(*x).to_f32();
        values.iter_mut().for_each(nearest);
    }
    values
}

/// Returns the values of a weight of a GGUF file in another model of any format: `None` if it is missing.
/// The gates of experts may be fused in one of them.
fn values_of(other: &Model, name: &str) -> Option<([u32; 3], Vec<f32>)> {
    let shape = |w: &Weight| [w.rows, w.cols, w.stack];
    if let Some(weight) = other.weights.get(name) {
        return Some((shape(weight), other.values(weight)));
    }
    if let Some(values) = fused_values_of(other, name) {
        return Some(values);
    }
    let part = |kind: &str| other.weights.get(&name.replace("gate_up", kind));
    let (gate, up) = (part("gate")?, part("up")?);
    let [rows, cols, stack] = shape(gate);
    let [gate, up] = [gate, up].map(|w| other.values(w));
    let expert = (rows / stack * cols) as usize;
    let pairs = gate.chunks(expert).zip(up.chunks(expert));
    let all = pairs.flat_map(|(gate, up)| [gate, up].concat()).collect();
    Some(([2 * rows, cols, stack], all))
}

/// As [`values_of`], for matrices of experts that are fused in `other`: rows, or biases, of the gate before those of
/// the other matrix, or in turn with them.
fn fused_values_of(other: &Model, name: &str) -> Option<([u32; 3], Vec<f32>)> {
    let parts = ["ffn_gate_exps", "ffn_up_exps"];
    let first = parts.iter().position(|part| name.contains(part))?;
    let fused = other
        .weights
        .get(&name.replace(parts[first], "ffn_gate_up_exps"))?;
    let shape = match name.ends_with(".bias") {
        true => [fused.rows, fused.cols / 2, fused.stack],
        false => [fused.rows / 2, fused.cols, fused.stack],
    };
    let width = if name.ends_with(".bias") {
        1
    } else {
        fused.cols as usize
    };
    let values = other.values(fused);
    if other.config.experts.glu_clamp.is_some() {
        let rows = values.chunks(width).skip(first).step_by(2);
        return Some((shape, rows.flatten().copied().collect()));
    }
    let half = values.len() / fused.stack as usize / 2;
    let halves = values.chunks(half).skip(first).step_by(2);
    Some((shape, halves.flatten().copied().collect()))
}

/// Lists weights of a checkpoint that differ from the GGUF file, are missing or are extra.
fn weight_differences(gguf: &Model, other: &Model) -> Vec<String> {
    let mut differences = Vec::new();
    let used = gguf
        .weights
        .iter()
        .filter(|(name, _)| !name.starts_with("rope_f"));
    for (name, expected) in used {
        // Some GGUF files contain a copy of a tied output projection.
        let tied = name == "output.weight" && !other.weights.contains_key(name);
        let name = if tied { "token_embd.weight" } else { name };
        let Some((actual, values)) = values_of(other, name) else {
            differences.push(format!("{name} is missing"));
            continue;
        };
        let dtype = other.weights.get(name).map_or(expected.dtype, |w| w.dtype);
        let types = [dtype, expected.dtype];
        let shape = [expected.rows, expected.cols, expected.stack];
        if actual != shape {
            differences.push(format!("{name}: expected shape {shape:?}, got {actual:?}"));
            continue;
        }
        let [values, expected_values] =
            [values, gguf.values(expected)].map(|values| rounded(values, &types));
        let heads = [".attn_q.", ".attn_k."]
            .iter()
            .any(|part| name.contains(part));
        let same = if heads && is_without_rope(gguf) {
            sorted_rows(&values, expected.cols) == sorted_rows(&expected_values, expected.cols)
        } else {
            are_equal(other, name, &values, &expected_values)
        };
        if !same && !has_multipliers(other) {
            differences.push(format!("{name}: values differ"));
        }
    }
    let known = |name: &String| gguf.weights.contains_key(name);
    let fused = |name: &String| {
        let parts = ["ffn_gate_exps", "ffn_up_exps"];
        let whole = parts.map(|part| name.replace(part, "ffn_gate_up_exps"));
        let parts = parts.map(|part| name.replace("ffn_gate_up_exps", part));
        [whole, parts].concat()
    };
    let extra = other
        .weights
        .keys()
        .filter(|name| !known(name) && !fused(name).iter().any(known));
    differences.extend(extra.map(|name| format!("{name} is unexpected")));
    differences
}

/// Converts the elements of a list, or a value, to numbers.
fn elements(value: &Value<'_>) -> Vec<Vec<f64>> {
    match value {
        Value::Array(list) => list.iter().map(|item| numbers(&item)).collect(),
        other => vec![numbers(other)],
    }
}

/// Lists keys of the tokenizer that differ from those that llama.cpp's converter wrote, or are missing. The name of a
/// pre-tokenizer has several values with the same meaning, and nothing reads the one of `WordPiece`. The converter
/// writes tokens that only `tokenizer.json` has as unused ones without their texts.
fn tokenizer_differences(gguf: &Model, file: &Model) -> Vec<String> {
    let expected = gguf.file.metadata.iter();
    let expected = expected
        .filter(|(key, _)| key.starts_with("tokenizer.ggml.") && *key != "tokenizer.ggml.pre");
    let types = gguf.file.metadata.get("tokenizer.ggml.token_type").unwrap();
    let unused: Vec<bool> = elements(&types).iter().map(|t| *t == [5.0]).collect();
    let differs = |key: &str, value: &Value<'_>| {
        let Some(actual) = file.file.metadata.get(key) else {
            return true;
        };
        let (expected, mut actual) = (elements(value), elements(&actual));
        if expected.len() == unused.len() && actual.len() == unused.len() {
            for id in (0..unused.len()).filter(|id| unused[*id]) {
                actual[id].clone_from(&expected[id]);
            }
        }
        actual != expected
    };
    let different = expected.filter(|(key, value)| differs(key, value));
    different.map(|(key, _)| key.to_string()).collect()
}

/// Returns the names of the tensors of a file.
fn names(model: &Model) -> BTreeSet<&str> {
    let tensors = model.file.tensors.iter();
    tensors.map(|tensor| &*tensor.name).collect()
}

/// Returns whether the tokenizer of a folder has merges, of which a converter makes scores of its own.
fn has_merges(folder: &Path) -> bool {
    let text = std::fs::read_to_string(folder.join("tokenizer.json"));
    text.unwrap().contains("\"merges\"")
}

/// Compares a checkpoint with the GGUF file of the same model.
#[track_caller]
fn compare(gguf: &Model, other: &Model, label: &str) {
    assert_eq!(gguf.arch.name, other.arch.name, "{label}");
    let mut differences = config_differences(gguf, other);
    differences.extend(weight_differences(gguf, other));
    let text = differences.join("\n");
    assert!(differences.is_empty(), "{label}:\n{text}");
}

/// Returns the golden folders with supported GGUF models, and these models.
fn goldens() -> Vec<(PathBuf, Model)> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let folders = ["arch", "cross_encoder"].into_iter().flat_map(|part| {
        let folders = std::fs::read_dir(all.join(part)).unwrap();
        folders.map(|folder| folder.unwrap().path())
    });
    let with_gguf = folders.filter_map(|folder| {
        let gguf = folder.join("model.gguf");
        let model = gguf.is_file().then(|| Model::open(&gguf)).flatten()?;
        Some((folder, model))
    });
    let all: Vec<_> = with_gguf.collect();
    assert!(!all.is_empty(), "no golden checkpoints");
    all
}

#[test]
fn formats_load_identically() {
    for (folder, gguf) in goldens() {
        let sides = ["hf", "mlx"].map(|side| folder.join(side));
        for side in sides.iter().filter(|side| side.is_dir()) {
            let other = Model::open(side).expect("supported like the GGUF file");
            compare(&gguf, &other, &side.display().to_string());
        }
    }
}

#[test]
fn converted_models_load_identically() {
    let (mut written_count, mut exported_count) = (0, 0);
    for (folder, gguf) in goldens() {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let root = tempfile::tempdir().expect("a temporary folder");
        let out = root.path().join("hf");
        let written = out.with_extension("gguf");
        let options = QuantizeOptions {
            mix: None,
            output: None,
            embedding: None,
            choose: &|_| None,
            importance: None,
            lora: Vec::new(),
            threads: 1,
        };
        let mut progress = |_, _| ControlFlow::Continue(());
        let from = |path: &Path| Source::Path(path.to_path_buf());
        let hf = folder.join("hf");
        if !hf.is_dir() {
            continue;
        }
        match quantize(&from(&hf), &written, &options, &mut progress) {
            Ok(_) => written_count += 1,
            // The experts of gpt-oss.
            Err(e) => {
                let known = e.message().contains("rows of gate and up in turn");
                assert!(known, "{name}: {e}");
                continue;
            }
        }
        let mut file = Model::open(&written).expect("supported");
        let converted = Model::open(&hf).expect("supported");
        if has_multipliers(&converted) {
            file.has_products = true;
            assert_eq!(names(&gguf), names(&file), "{name}");
            compare(&gguf, &file, name);
        }
        if gguf.arch.encoder && !has_merges(&hf) {
            let differences = tokenizer_differences(&gguf, &file);
            assert!(differences.is_empty(), "{name}: {differences:?}");
        }
        compare(&file, &converted, name);
        match export(
            &from(&written),
            &out,
            &ExportOptions::default(),
            &mut progress,
        ) {
            Ok(_) => {
                exported_count += 1;
                compare(&gguf, &Model::open(&out).expect("supported"), name);
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unsupported, "{name}: {e}");
                let supported =
                    gguf.arch.exported().next().is_some() && gguf.config.experts.count == 0;
                assert!(!supported, "{name}: {e}");
            }
        }
    }
    assert!(written_count > exported_count && exported_count > 0);
}
