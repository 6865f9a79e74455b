//! Tests of adapters in GGUF files: scales, types and errors.

use super::{
    DIM, FFN, RowOrder, assert_fails, gguf_matrices, gguf_modules, gguf_writer, read_gguf,
};
use crate::adapter::{AdapterBase, gguf};
use crate::arch::{self, LayerConfig, Mixer};
use crate::dtype::DType;
use crate::error::ErrorKind;
use crate::format::open_bytes;
use crate::format::write::Writer;
use crate::quant;

#[test]
fn gguf_scale_is_alpha_by_rank_or_one() {
    let tensors = gguf_matrices("blk.1.ffn_down.weight", 4, [DIM, FFN]);
    for (alpha, expected) in [(2.0, 0.5), (0.0, 1.0), (-4.0, -1.0)] {
        let modules = gguf_modules("llama", RowOrder::Halves, alpha, &tensors).unwrap();
        assert_eq!(modules[0].tensor, "blk.1.ffn_down");
        assert_eq!(modules[0].b[1], expected);
    }
}

#[test]
fn gguf_matrices_can_be_quantized() {
    let layer = LayerConfig {
        heads: 1,
        kv_heads: 1,
        head_dim: 32,
        ffn: 32,
        experts: 0,
        window: 0,
        rope: None,
        cache: 0,
        mixer: Mixer::Attention,
        latent: false,
        skip: 0,
    };
    let values: Vec<f32> = (0..64).map(|n| (n % 32) as f32 - 16.0).collect();
    let mut rows = Vec::new();
    for row in values.chunks(32) {
        quant::encode_row(DType::Q8_0, row, &mut rows);
    }
    let halves: Vec<u8> = [0x3c00u16; 64]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let mut writer = gguf_writer("llama", 2.0, &[]);
    writer
        .tensor("blk.0.attn_v.weight.lora_a", DType::Q8_0, &[32, 2], rows)
        .tensor("blk.0.attn_v.weight.lora_b", DType::F16, &[2, 32], halves);
    let file = open_bytes("test", writer.finish().unwrap()).unwrap();
    let base = AdapterBase {
        arch: arch::find("llama").unwrap(),
        layers: &[layer],
        half_split: true,
        shape: &|_| Some([32, 32]),
    };
    let modules = gguf::modules(&file, &base).unwrap();
    assert_eq!(modules[0].b, [1.0; 64]);
    let near = modules[0].a.iter().zip(&values);
    assert!(
        near.clone().all(|(a, b)| (a - b).abs() < 0.1),
        "{modules:?}"
    );
}

#[test]
fn rejects_other_gguf_files() {
    let tensors = gguf_matrices("blk.0.attn_q.weight", 2, [DIM, DIM]);
    let check = |writer: &Writer<'_>, kind, part: &str| {
        assert_fails(read_gguf("llama", RowOrder::Halves, writer), kind, &[part]);
    };
    let mut model = Writer::new();
    model.set("general.architecture", "llama");
    check(&model, ErrorKind::Format, "general.type is missing");
    model.set("general.type", "model");
    check(&model, ErrorKind::Unsupported, "general.type is \"model\"");
    let part = "the adapter belongs to a model of architecture \"qwen2\", the model has \"llama\"";
    check(
        &gguf_writer("qwen2", 1.0, &tensors),
        ErrorKind::Argument,
        part,
    );
    let mut activated = gguf_writer("llama", 1.0, &tensors);
    activated.list("adapter.alora.invocation_tokens", &[1u32, 2]);
    check(&activated, ErrorKind::Unsupported, "activated LoRA");
}

#[test]
fn rejects_tensors_of_gguf_files_that_do_not_fit() {
    let tensors = gguf_matrices("blk.0.attn_q.weight", 2, [DIM, DIM]);
    let check = |writer: &Writer<'_>, kind, part: &str| {
        assert_fails(read_gguf("llama", RowOrder::Halves, writer), kind, &[part]);
    };
    for (weight, kind, part) in [
        (
            "token_embd.weight",
            ErrorKind::Unsupported,
            "module token_embd.weight: expected",
        ),
        (
            "output.weight",
            ErrorKind::Unsupported,
            "module output.weight: expected",
        ),
        (
            "blk.0.ffn_up_exps.weight",
            ErrorKind::Unsupported,
            "LoRA of experts",
        ),
        (
            "blk.x.attn_q.weight",
            ErrorKind::Unsupported,
            "module blk.x.attn_q.weight",
        ),
        (
            "blk.9.attn_q.weight",
            ErrorKind::Argument,
            "layer 9 is out of range",
        ),
        (
            "blk.0.attn_x.weight",
            ErrorKind::Argument,
            "no weight blk.0.attn_x",
        ),
    ] {
        let tensors = gguf_matrices(weight, 2, [DIM, DIM]);
        check(&gguf_writer("llama", 1.0, &tensors), kind, part);
    }
    let half = &tensors[..1];
    check(
        &gguf_writer("llama", 1.0, half),
        ErrorKind::Format,
        "has no matrix B",
    );
    let norm = [("blk.0.attn_norm.weight".to_string(), [1, 8], vec![1.0; 8])];
    let part = "tensor blk.0.attn_norm.weight: expected a name that ends in .lora_a";
    check(
        &gguf_writer("llama", 1.0, &norm),
        ErrorKind::Unsupported,
        part,
    );
}

#[test]
fn rejects_other_types_and_shapes_of_gguf_files() {
    let tensors = gguf_matrices("blk.0.attn_q.weight", 2, [DIM, DIM]);
    let check = |writer: &Writer<'_>, kind, part: &str| {
        assert_fails(read_gguf("llama", RowOrder::Halves, writer), kind, &[part]);
    };
    let mut integers = gguf_writer("llama", 1.0, &[]);
    integers
        .tensor(
            "blk.0.attn_q.weight.lora_a",
            DType::I32,
            &[8, 1],
            vec![0; 32],
        )
        .tensor(
            "blk.0.attn_q.weight.lora_b",
            DType::I32,
            &[1, 8],
            vec![0; 32],
        );
    check(&integers, ErrorKind::Unsupported, "unsupported type i32");
    let mut stacked = gguf_writer("llama", 1.0, &tensors[1..]);
    stacked.tensor(
        "blk.0.attn_q.weight.lora_a",
        DType::F32,
        &[8, 2, 2],
        vec![0; 128],
    );
    check(&stacked, ErrorKind::Format, "has 3 dimensions, expected 2");
}
