//! Tests of both adapter formats: names, scales, row order, fused modules, and errors.

mod gguf;
mod peft;

use super::merge::Merge;
use super::peft_config::PeftConfig;
use super::{AdapterBase, read};
use crate::arch::{self, Arch, LayerConfig, Mixer};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::format::write::Writer;
use crate::format::{Directory, open_bytes, safetensors_header};
use crate::model::AdapterModule;
use serde_json::{Value, json};

const DIM: u64 = 8;
const FFN: u64 = 6;

/// Order of the rows of Q and K of a model.
#[derive(Clone, Copy, PartialEq)]
enum RowOrder {
    Halves,
    Pairs,
}

/// Calls `with` for a model of two layers with two heads of dimension 4 and one KV head.
fn with_base<T>(
    arch: &'static Arch,
    order: RowOrder,
    with: impl FnOnce(&AdapterBase<'_>) -> T,
) -> T {
    let layer = |cache| LayerConfig {
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        ffn: 6,
        experts: 0,
        window: 0,
        rope: Some(0),
        cache,
        mixer: Mixer::Attention,
        latent: false,
        skip: 0,
    };
    let shape = |name: &str| {
        let kind = name
            .strip_prefix("blk.0.")
            .or(name.strip_prefix("blk.1."))?;
        match kind {
            "attn_q" | "attn_output" => Some([8, 8]),
            "attn_k" | "attn_v" => Some([4, 8]),
            "ffn_gate" | "ffn_up" => Some([6, 8]),
            "ffn_down" => Some([8, 6]),
            _ => None,
        }
    };
    with(&AdapterBase {
        arch,
        layers: &[layer(0), layer(1)],
        half_split: order == RowOrder::Halves,
        shape: &shape,
    })
}

/// A tensor: name, rows and columns, values.
type Tensor<'a> = (&'a str, [u64; 2], Vec<f32>);

/// Returns 0, 1, 2, ...
fn counted([rows, cols]: [u64; 2]) -> Vec<f32> {
    (0..rows * cols).map(|n| n as f32).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Returns a safetensors file.
fn safetensors(tensors: &[Tensor<'_>]) -> Vec<u8> {
    let dims: Vec<[u64; 2]> = tensors.iter().map(|(_, [r, c], _)| [*c, *r]).collect();
    let entries = tensors
        .iter()
        .zip(&dims)
        .map(|((name, [r, c], _), dims)| (name.to_string(), "F32", dims.as_slice(), 4 * r * c));
    let mut file = safetensors_header(&entries.collect::<Vec<_>>()).unwrap();
    file.extend(tensors.iter().flat_map(|(_, _, values)| bytes(values)));
    file
}

/// Returns the configuration of an adapter of rank 2 with scale 2, with other values.
fn config(changes: &Value) -> Value {
    let mut config = json!({ "peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none" });
    let changes = changes.as_object().unwrap().clone();
    config.as_object_mut().unwrap().extend(changes);
    config
}

/// Reads an adapter of `peft` for a model with this row order.
fn peft_modules(
    arch: &str,
    order: RowOrder,
    changes: &Value,
    tensors: &[Tensor<'_>],
) -> Result<Vec<AdapterModule>> {
    let file: Directory = open_bytes("test", safetensors(tensors))?;
    let config = PeftConfig::parse(&config(changes).to_string())?;
    let arch = arch::find(arch).unwrap();
    with_base(arch, order, |base| {
        super::peft::modules(&file, &config, base)
    })
}

/// Returns the matrices of a module with ones in A and 0, 1, 2, ... in B.
fn matrices(
    a: &'static str,
    b: &'static str,
    rank: u64,
    [outputs, inputs]: [u64; 2],
) -> [Tensor<'static>; 2] {
    let ones = vec![1.0; usize::try_from(rank * inputs).unwrap()];
    [
        (a, [rank, inputs], ones),
        (b, [outputs, rank], counted([outputs, rank])),
    ]
}

const UP_A: &str = "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight";
const UP_B: &str = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight";
const Q_A: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight";
const Q_B: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight";
const FUSED_A: &str = "base_model.model.model.layers.0.self_attn.qkv_proj.lora_A.weight";
const FUSED_B: &str = "base_model.model.model.layers.0.self_attn.qkv_proj.lora_B.weight";

/// Returns the first column of B divided by the rank, which numbers its rows before scaling.
fn rows(module: &AdapterModule, scale: f32) -> Vec<f32> {
    let rank = module.rank as usize;
    let rows = module.b.chunks_exact(rank);
    rows.map(|row| row[0] / scale / rank as f32).collect()
}

#[test]
fn rows_of_q_and_k_have_the_order_of_the_model() {
    let tensors = matrices(Q_A, Q_B, 2, [DIM, DIM]);
    let interleaved = [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0];
    let modules = peft_modules("llama", RowOrder::Pairs, &json!({}), &tensors).unwrap();
    assert_eq!(rows(&modules[0], 2.0), interleaved);
    let same: Vec<f32> = (0..8).map(|n| n as f32).collect();
    let modules = peft_modules("llama", RowOrder::Halves, &json!({}), &tensors).unwrap();
    assert_eq!(rows(&modules[0], 2.0), same);

    let weight = "blk.0.attn_q.weight";
    let tensors = gguf_matrices(weight, 2, [DIM, DIM]);
    let modules = gguf_modules("llama", RowOrder::Halves, 4.0, &tensors).unwrap();
    assert_eq!(
        rows(&modules[0], 2.0),
        interleaved,
        "the inverse for heads of four rows"
    );
    let modules = gguf_modules("llama", RowOrder::Pairs, 4.0, &tensors).unwrap();
    assert_eq!(rows(&modules[0], 2.0), same);
    // Files of other architectures have no permuted rows.
    let modules = gguf_modules("qwen2", RowOrder::Halves, 4.0, &tensors).unwrap();
    assert_eq!(rows(&modules[0], 2.0), same);
}

#[test]
fn parts_of_fused_modules_share_a() {
    let tensors = matrices(FUSED_A, FUSED_B, 2, [16, DIM]);
    let modules = peft_modules("phi3", RowOrder::Halves, &json!({}), &tensors).unwrap();
    let check = |modules: &[AdapterModule], expected: &[(&str, u32, f32)]| {
        assert_eq!(modules.len(), expected.len());
        for (module, (name, outputs, first)) in modules.iter().zip(expected) {
            assert_eq!((module.tensor.as_str(), module.outputs), (*name, *outputs));
            assert_eq!((rows(module, 2.0)[0], module.a.len()), (*first, 16));
        }
    };
    let qkv = [
        ("blk.0.attn_q", 8, 0.0),
        ("blk.0.attn_k", 4, 8.0),
        ("blk.0.attn_v", 4, 12.0),
    ];
    check(&modules, &qkv);
    let tensors = gguf_matrices("blk.0.attn_qkv.weight", 2, [16, DIM]);
    check(
        &gguf_modules("phi3", RowOrder::Halves, 4.0, &tensors).unwrap(),
        &qkv,
    );
    let tensors = gguf_matrices("blk.1.ffn_up.weight", 2, [12, DIM]);
    let modules = gguf_modules("phi3", RowOrder::Halves, 4.0, &tensors).unwrap();
    check(
        &modules,
        &[("blk.1.ffn_gate", 6, 0.0), ("blk.1.ffn_up", 6, 6.0)],
    );
    let tensors = gguf_matrices("blk.1.ffn_up.weight", 2, [6, DIM]);
    let modules = gguf_modules("phi3", RowOrder::Halves, 4.0, &tensors).unwrap();
    check(&modules, &[("blk.1.ffn_up", 6, 0.0)]);
}

/// Checks that reading fails with this kind and a message that contains these parts.
#[track_caller]
fn assert_fails<T>(result: Result<T>, kind: ErrorKind, parts: &[&str]) {
    let e: Error = result.err().expect("reading fails");
    for part in parts {
        assert!(e.message().contains(part), "{part:?} is not in: {e}");
    }
    assert_eq!(e.kind(), kind, "{e}");
}

/// Returns the matrices of a weight in a GGUF file.
fn gguf_matrices(weight: &str, rank: u64, shape: [u64; 2]) -> Vec<(String, [u64; 2], Vec<f32>)> {
    let [(_, a_shape, a), (_, b_shape, b)] = matrices("", "", rank, shape);
    vec![
        (format!("{weight}.lora_a"), a_shape, a),
        (format!("{weight}.lora_b"), b_shape, b),
    ]
}

/// Returns a GGUF file with these tensors.
fn gguf_writer(
    arch: &str,
    alpha: f32,
    tensors: &[(String, [u64; 2], Vec<f32>)],
) -> Writer<'static> {
    let mut writer = Writer::new();
    writer
        .set("general.architecture", arch)
        .set("general.type", "adapter")
        .set("adapter.type", "lora")
        .set("adapter.lora.alpha", alpha);
    for (name, [rows, cols], values) in tensors {
        writer.tensor(name, DType::F32, &[*cols, *rows], bytes(values));
    }
    writer
}

fn gguf_modules(
    arch: &str,
    order: RowOrder,
    alpha: f32,
    tensors: &[(String, [u64; 2], Vec<f32>)],
) -> Result<Vec<AdapterModule>> {
    read_gguf(arch, order, &gguf_writer(arch, alpha, tensors))
}

fn read_gguf(arch: &str, order: RowOrder, writer: &Writer<'_>) -> Result<Vec<AdapterModule>> {
    let file = open_bytes("test", writer.finish()?)?;
    let arch = arch::find(arch).unwrap();
    with_base(arch, order, |base| super::gguf::modules(&file, base))
}

#[test]
fn opens_folders_and_files() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let folder = root.path();
    let arch = arch::find("llama").unwrap();
    let read = |path: &std::path::Path| with_base(arch, RowOrder::Halves, |base| read(path, base));
    assert_fails(
        read(folder),
        ErrorKind::Io,
        &["adapter_config.json: no such file"],
    );
    let text = config(&json!({})).to_string();
    std::fs::write(folder.join("adapter_config.json"), text).unwrap();
    std::fs::write(folder.join("adapter_model.bin"), b"").unwrap();
    assert_fails(
        read(folder),
        ErrorKind::Unsupported,
        &["adapter_model.bin: pickles"],
    );
    let weights = folder.join("adapter_model.safetensors");
    std::fs::write(&weights, safetensors(&[])).unwrap();
    assert_fails(
        read(folder),
        ErrorKind::Format,
        &["the adapter has no modules"],
    );
    let pair = matrices(Q_A, Q_B, 2, [DIM, DIM]);
    std::fs::write(&weights, safetensors(&pair)).unwrap();
    let adapter = read(folder).unwrap();
    assert_eq!(adapter.name, folder.file_name().unwrap().to_str().unwrap());
    assert_eq!(read(&weights).unwrap().modules, adapter.modules);
    let tensors = gguf_matrices("blk.0.attn_q.weight", 2, [16, DIM]);
    let path = folder.join("style.gguf");
    let file = gguf_writer("llama", 4.0, &tensors).finish().unwrap();
    std::fs::write(&path, &file).unwrap();
    let parts = ["style.gguf: module blk.0.attn_q.weight: expected 8 outputs"];
    assert_fails(read(&path), ErrorKind::Argument, &parts);
    // Every truncated file is an error.
    for length in (8..file.len()).step_by(7) {
        std::fs::write(&path, &file[..length]).unwrap();
        read(&path).unwrap_err();
    }
}

#[test]
fn merging_adds_the_scaled_product() {
    let module = AdapterModule {
        tensor: "blk.0.attn_q".into(),
        rank: 2,
        inputs: 3,
        outputs: 2,
        a: vec![1.0, 2.0, 3.0, 10.0, 20.0, 30.0],
        b: vec![1.0, 0.0, 2.0, -1.0],
    };
    let merge = Merge {
        module: &module,
        scale: 0.5,
        first_row: 4,
    };
    let rows: Vec<Vec<f32>> = (3..7)
        .map(|row| {
            let mut weights = vec![1.0; 3];
            merge.add_to_row(row, &mut weights);
            weights
        })
        .collect();
    let same = vec![1.0; 3];
    let expected = [
        same.clone(),
        vec![1.5, 2.0, 2.5],
        vec![-3.0, -7.0, -11.0],
        same,
    ];
    assert_eq!(rows, expected);
}
