//! Tests of combining tensors into weights, with generated checkpoints.

mod packed;
mod packed_floats;

use super::config::HfConfig;
use super::quantization::Quantization;
use super::weights::{Adjustments, collect};
use crate::arch;
use crate::dtype::DType;
use crate::error::Result;
use crate::format::{Directory, open_bytes};
use crate::split::split;
use crate::weight::Weight;
use serde_json::{Map, Value, json};
use tabla_testkit::fixed_json;

/// Creates safetensors of tensors given as name, type, element size and shape, with counting bytes.
pub(crate) fn checkpoint(tensors: &[(&str, &str, usize, &[usize])]) -> Directory {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, dtype, size, shape) in tensors {
        let from = data.len();
        let bytes = shape.iter().product::<usize>() * size;
        data.extend((0..bytes).map(|i| u8::try_from(i % 120).unwrap()));
        let place = json!({ "dtype": dtype, "shape": shape, "data_offsets": [from, data.len()] });
        header.insert((*name).to_string(), place);
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    open_bytes("test", file).unwrap()
}

fn weights(file: &Directory, config: &Value) -> Result<Vec<Weight>> {
    weights_of("llama", file, config)
}

pub(crate) fn weights_of(arch: &str, file: &Directory, config: &Value) -> Result<Vec<Weight>> {
    let config = HfConfig::parse(&config.to_string()).unwrap();
    let adjustments = Adjustments {
        skipped_module: (config.tied()? == Some(true)).then_some("output"),
        position_offset: 0,
        predicts_after: config.predicts_after(arch::find(arch)?)?,
    };
    let quantization = Quantization::read(&config)?;
    collect(file, arch::find(arch)?, &quantization, &adjustments)
}

/// Returns the only weight of a checkpoint.
fn one(tensors: &[(&str, &str, usize, &[usize])], config: &Value) -> (Directory, Weight) {
    let file = checkpoint(tensors);
    let mut weights = weights(&file, config).unwrap();
    assert_eq!(weights.len(), 1);
    (file, weights.remove(0))
}

#[track_caller]
fn assert_rejected(tensors: &[(&str, &str, usize, &[usize])], config: &Value, part: &str) {
    let e = weights(&checkpoint(tensors), config).expect_err(part);
    assert!(e.message().contains(part), "expected {part:?} in: {e}");
}

#[test]
fn floats_stay_in_place_and_vectors_become_f32() {
    let file = checkpoint(&[
        ("model.norm.weight", "BF16", 2, &[4]),
        ("model.layers.1.self_attn.q_proj.weight", "BF16", 2, &[2, 4]),
        ("model.layers.1.self_attn.q_proj.bias", "F16", 2, &[2]),
        (
            "model.layers.1.self_attn.rotary_emb.inv_freq",
            "F32",
            4,
            &[2],
        ),
    ]);
    let weights = weights(&file, &json!({})).unwrap();
    let facts: Vec<_> = weights
        .iter()
        .map(|w| (w.name.as_str(), w.dtype, [w.rows, w.cols]))
        .collect();
    let expected = [
        ("output_norm.weight", DType::F32, [1, 4]),
        ("blk.1.attn_q.weight", DType::Bf16, [2, 4]),
        ("blk.1.attn_q.bias", DType::F32, [1, 2]),
    ];
    assert_eq!(facts, expected);
    assert_eq!(weights[1].codes.bytes(&file), file.bytes(&file.tensors[1]));
    // bf16 is the upper half of f32.
    assert_eq!(weights[0].codes.bytes(&file)[..8], [0, 0, 0, 1, 0, 0, 2, 3]);
}

#[test]
fn skips_the_copy_of_a_tied_head() {
    let tensors: &[(&str, &str, usize, &[usize])] = &[
        ("model.embed_tokens.weight", "F32", 4, &[8, 4]),
        ("lm_head.weight", "F32", 4, &[8, 4]),
    ];
    let count = |tied: Value| {
        let config = json!({ "tie_word_embeddings": tied });
        weights(&checkpoint(tensors), &config).unwrap().len()
    };
    assert_eq!(
        (count(json!(true)), count(json!(false)), count(json!(null))),
        (1, 2, 2)
    );
}

/// Returns MLX tensors of an `lm_head`, with the shapes of words and groups.
fn mlx<'a>(
    words: &'a [usize; 2],
    groups: &'a [usize; 2],
    biases: &'a str,
) -> Vec<(&'static str, &'a str, usize, &'a [usize])> {
    let float = if biases.is_empty() {
        ("U8", 1)
    } else {
        ("BF16", 2)
    };
    let mut all: Vec<(_, _, _, &[usize])> = vec![
        ("lm_head.weight", "U32", 4, words),
        ("lm_head.scales", float.0, float.1, groups),
    ];
    if !biases.is_empty() {
        all.push(("lm_head.biases", biases, 2, groups));
    }
    all
}

#[test]
fn reads_mlx_modes() {
    let affine = mlx(&[8, 12], &[8, 2], "BF16");
    let config = fixed_json!({ "quantization": { "group_size": 64, "bits": 3 } });
    let (file, w) = one(&affine, &config);
    assert_eq!((w.dtype, w.rows, w.cols), (DType::Affine3, 8, 128));
    let scales = w.scales(&file).unwrap();
    assert_eq!((scales.float, scales.group), (DType::Bf16, [1, 64]));
    assert_eq!((scales.bytes.len(), scales.biases.len()), (32, 32));

    for (mode, bits, words, groups, dtype, float) in [
        ("mxfp4", 4, 16, 4, DType::E2m1, DType::E8m0),
        ("mxfp8", 8, 32, 4, DType::E4m3, DType::E8m0),
        ("nvfp4", 4, 16, 8, DType::E2m1, DType::E4m3),
    ] {
        let (words, groups) = ([8, words], [8, groups]);
        let floats = mlx(&words, &groups, "");
        let config = json!({ "quantization": { "bits": bits, "mode": mode } });
        let (file, w) = one(&floats, &config);
        assert_eq!((w.dtype, w.cols), (dtype, 128), "{mode}");
        let scales = w.scales(&file).unwrap();
        assert_eq!(scales.float, float, "{mode}");
        assert!(scales.biases.is_empty(), "{mode}");
    }
}

#[test]
fn reads_mlx_settings_per_layer() {
    let own = fixed_json!({ "quantization": { "group_size": 32, "bits": 4,
        "lm_head": { "group_size": 128, "bits": 6 }, "model.norm": false } });
    let (_, w) = one(&mlx(&[8, 24], &[8, 1], "BF16"), &own);
    assert_eq!((w.dtype, w.cols), (DType::Affine6, 128));
    let unquantized =
        fixed_json!({ "quantization": { "group_size": 32, "bits": 4, "lm_head": false } });
    let (_, w) = one(&[("lm_head.weight", "BF16", 2, &[8, 4])], &unquantized);
    assert_eq!((w.dtype, w.scales.is_none()), (DType::Bf16, true));
}

#[test]
fn rejects_mlx_tensors_that_contradict_the_configuration() {
    let four = fixed_json!({ "quantization": { "group_size": 64, "bits": 4 } });
    assert_rejected(
        &mlx(&[8, 16], &[8, 3], "BF16"),
        &four,
        "tensor lm_head.scales has shape [3, 8], expected [2, 8]",
    );
    assert_rejected(
        &mlx(&[8, 15], &[8, 2], "BF16"),
        &four,
        "tensor lm_head.weight is u32 with 15 columns",
    );
    assert_rejected(
        &mlx(&[8, 16], &[8, 2], ""),
        &four,
        "tensor lm_head.scales: unsupported type u8",
    );
    assert_rejected(
        &mlx(&[8, 16], &[8, 2], "F16"),
        &four,
        "tensor lm_head.scales of type bf16",
    );
    assert_rejected(
        &mlx(&[8, 16], &[8, 2], "BF16"),
        &json!({}),
        "has no quantization object",
    );
    for (bad, part) in [
        (fixed_json!({ "bits": 7 }), "bits"),
        (fixed_json!({ "bits": 4, "mode": "newest" }), "newest"),
        (fixed_json!({ "bits": 4, "group_size": 0 }), "group_size"),
        (fixed_json!({ "bits": "4" }), "bits"),
    ] {
        let config = json!({ "quantization": bad });
        assert_rejected(&mlx(&[8, 16], &[8, 2], "BF16"), &config, part);
    }
    let three = fixed_json!({ "quantization": { "group_size": 16, "bits": 8 } });
    assert_rejected(
        &mlx(&[8, 12], &[8, 3], "BF16"),
        &three,
        "rows of 48 columns",
    );
    let floats = [
        ("lm_head.weight", "BF16", 2, [8, 16].as_slice()),
        ("lm_head.scales", "BF16", 2, &[8, 2]),
    ];
    assert_rejected(&floats, &four, "tensor lm_head.weight is bf16");
}

fn fp8(block: Value) -> Value {
    json!({ "quantization_config": { "quant_method": "fp8", "weight_block_size": block } })
}

#[test]
fn reads_scales_per_block_row_and_tensor() {
    let codes = ("lm_head.weight", "F8_E4M3", 1, [8, 20].as_slice());
    for (shape, group) in [
        ([3, 2].as_slice(), [3, 16]),
        (&[8, 1], [1, 20]),
        (&[8], [1, 20]),
        (&[1], [8, 20]),
        (&[], [8, 20]),
        (&[1, 1], [8, 20]),
    ] {
        for part in ["lm_head.weight_scale", "lm_head.weight_scale_inv"] {
            let (file, w) = one(&[codes, (part, "F32", 4, shape)], &fp8(json!([3, 16])));
            let scales = w.scales(&file).unwrap();
            assert_eq!((w.dtype, scales.group), (DType::E4m3, group), "{shape:?}");
        }
    }
    let groups = fixed_json!({ "quantization_config": { "quant_method": "compressed-tensors",
        "config_groups": { "group_0": { "weights": { "group_size": 16 } } } } });
    let ints = ("lm_head.weight", "I8", 1, [8, 32].as_slice());
    let (file, w) = one(
        &[ints, ("lm_head.weight_scale", "F16", 2, &[8, 2])],
        &groups,
    );
    assert_eq!(
        (w.dtype, w.scales(&file).unwrap().group),
        (DType::I8, [1, 16])
    );

    let scale = |dtype, shape| ("lm_head.weight_scale", dtype, 4, shape);
    let block = fp8(json!([3, 16]));
    assert_rejected(
        &[codes, scale("F32", [4, 2].as_slice())],
        &block,
        "weight_scale: unsupported scales f32 [2, 4]",
    );
    let narrow = fp8(json!([3, 10]));
    assert_rejected(
        &[codes, scale("F32", [3, 2].as_slice())],
        &narrow,
        "in groups of 10",
    );
    assert_rejected(
        &[codes, scale("U32", [1].as_slice())],
        &block,
        "weight_scale: unsupported scales u32",
    );
    assert_rejected(
        &[codes],
        &block,
        "tensor lm_head.weight is e4m3, but lm_head.weight_scale",
    );
    let floats = ("lm_head.weight", "F16", 2, [8, 20].as_slice());
    assert_rejected(
        &[floats, scale("F32", &[1])],
        &block,
        "unsupported type f16 with scale",
    );
    let both = [
        codes,
        scale("F32", &[1]),
        ("lm_head.weight_scale_inv", "F32", 4, &[1]),
    ];
    assert_rejected(&both, &block, "has two tensors of this role");
    let mixed = [codes, ("lm_head.scales", "F32", 4, &[1]), both[1]];
    assert_rejected(&mixed, &block, "unsupported combination");
    let alone = [
        ("lm_head.weight", "F32", 4, [8, 4].as_slice()),
        ("lm_head.biases", "F32", 4, &[8, 1]),
    ];
    assert_rejected(&alone, &block, "unsupported combination");
}

#[test]
fn ternary_scales_multiply_or_divide() {
    let file = [
        ("lm_head.weight", "U8", 1, [2, 32].as_slice()),
        // 0x0100 is a bf16 of 2^-125.
        ("lm_head.weight_scale", "BF16", 2, &[1]),
    ];
    let class = |class: &str| json!({ "quantization_config": { "quant_method": "bitnet", "linear_class": class } });
    for (class, scale) in [
        (class("autobitlinear"), 2f32.powi(-125)),
        (class("bitlinear"), 2f32.powi(125)),
        (
            fixed_json!({ "quantization_config": { "quant_method": "bitnet" } }),
            2f32.powi(125),
        ),
    ] {
        let (file, w) = one(&file, &class);
        assert_eq!((w.dtype, w.rows, w.cols), (DType::Ternary, 8, 32));
        let scales = w.scales(&file).unwrap();
        assert_eq!(
            (scales.bytes, scales.group),
            (scale.to_le_bytes().as_slice(), [8, 32])
        );
    }
    let two = [file[0], ("lm_head.weight_scale", "F32", 4, &[2])];
    assert_rejected(&two, &json!({}), "expected one scale");
}

#[test]
fn names_unsupported_tensors_and_methods() {
    let head = ("lm_head.weight", "F32", 4, [8, 4].as_slice());
    for name in [
        "score.weight",
        "lm_head.weight_bitmask",
        "model.layers.0.mlp.expert.0.up_proj.weight",
        "weight",
    ] {
        assert_rejected(
            &[head, (name, "F32", 4, &[4])],
            &json!({}),
            &format!("unexpected tensor {name}"),
        );
    }
    assert_rejected(
        &[("lm_head.bias", "F32", 4, &[4])],
        &json!({}),
        "tensor lm_head.weight is missing",
    );
    assert_rejected(
        &[("lm_head.weight", "F8_E5M2", 1, &[8, 4])],
        &json!({}),
        "e5m2",
    );
    let method = |value: Value| json!({ "quantization_config": value });
    assert_rejected(
        &[head],
        &method(fixed_json!({ "quant_method": "aqlm" })),
        "unsupported method \"aqlm\"; supported are fp8, compressed-tensors, gptq, awq,",
    );
    let sparse = fixed_json!({ "quant_method": "compressed-tensors", "format": "marlin-24" });
    assert_rejected(&[head], &method(sparse), "unsupported format \"marlin-24\"");
    let sparse = fixed_json!({ "quant_method": "compressed-tensors", "format": "dense",
        "sparsity_config": { "format": "sparse-24-bitmask" } });
    assert_rejected(
        &[head],
        &method(sparse),
        "sparsity_config.format \"sparse-24-bitmask\"",
    );
    let mut online = fixed_json!({ "quant_method": "bitnet", "quantization_mode": "online" });
    assert_rejected(&[head], &method(online.clone()), "online quantization");
    online["linear_class"] = json!("autobitlinear");
    online["modules_to_not_convert"] = fixed_json!(["lm_head", "q_proj"]);
    assert_rejected(&[head], &method(online), "online quantization");
    let rotated = fixed_json!({ "quant_method": "compressed-tensors", "transform_config": { "config_groups": {} } });
    assert_rejected(&[head], &method(rotated), "transform_config");
}

/// Returns the weights of an architecture: name, `[stack, rows, cols]` and F32 values.
pub(crate) fn shapes(
    arch: &str,
    tensors: &[(&str, &str, usize, &[usize])],
) -> Vec<(String, [u32; 3], Vec<f32>)> {
    let file = checkpoint(tensors);
    let arch = arch::find(arch).unwrap();
    let weights = weights_of(arch.name, &file, &json!({})).unwrap();
    let weights = split(weights, &file, arch, &|_| [4, 2]).unwrap();
    let facts = weights.iter().map(|w| {
        let (floats, _) = w.codes.bytes(&file).as_chunks();
        let values = floats.iter().map(|b| f32::from_le_bytes(*b));
        (w.name.clone(), [w.stack, w.rows, w.cols], values.collect())
    });
    facts.collect()
}

/// Returns `count` F32 values of a checkpoint tensor, starting with value `first`.
pub(crate) fn counted(first: usize, count: usize) -> Vec<f32> {
    let byte = |i: usize| u8::try_from(i % 120).unwrap();
    let number = |i: usize| f32::from_le_bytes([0, 1, 2, 3].map(|k| byte(4 * (first + i) + k)));
    (0..count).map(number).collect()
}

#[test]
fn transposes_conv1d_matrices_once() {
    let values = |qkv: &[usize]| {
        let actual = shapes("gpt2", &[("h.0.attn.c_attn.weight", "F32", 4, qkv)]);
        actual
            .into_iter()
            .flat_map(|(_, _, values)| values)
            .collect::<Vec<_>>()
    };
    let all = counted(0, 24);
    assert_eq!(values(&[8, 3]), all);
    let columns: Vec<f32> = (0..8)
        .flat_map(|c| [0, 1, 2].map(|r| all[r * 8 + c]))
        .collect();
    assert_eq!(values(&[3, 8]), columns);
}

#[test]
fn adds_one_to_gemma_norms() {
    let norm = [(
        "model.layers.0.input_layernorm.weight",
        "F32",
        4,
        [3].as_slice(),
    )];
    let plain = counted(0, 3);
    let shifted: Vec<f32> = plain.iter().map(|x| x + 1.0).collect();
    assert_eq!(shapes("gemma2", &norm)[0].2, shifted);
    assert_eq!(shapes("gemma4", &norm)[0].2, plain);
}

#[test]
fn stacks_experts() {
    let one = |name| (name, "F32", 4, [2, 3].as_slice());
    let second = one("model.layers.0.mlp.experts.1.down_proj.weight");
    let first = one("model.layers.0.mlp.experts.0.down_proj.weight");
    let stacked = |module: &str| format!("blk.0.{module}.weight");
    let actual = shapes("qwen3moe", &[second, first]);
    // The bytes of each tensor count from 0.
    let both = [counted(0, 6), counted(0, 6)].concat();
    assert_eq!(actual, [(stacked("ffn_down_exps"), [2, 4, 3], both)]);
    let mlx = (
        "model.layers.0.mlp.switch_mlp.down_proj.weight",
        "F32",
        4,
        [2, 2, 3].as_slice(),
    );
    let actual = shapes("qwen3moe", &[mlx]);
    assert_eq!(
        actual,
        [(stacked("ffn_down_exps"), [2, 4, 3], counted(0, 12))]
    );
    // Gate and up stay fused; the parameter has no `.weight` suffix.
    let fused = (
        "model.layers.0.mlp.experts.gate_up_proj",
        "F32",
        4,
        [2, 2, 3].as_slice(),
    );
    let expected = (stacked("ffn_gate_up_exps"), [2, 4, 3], counted(0, 12));
    assert_eq!(shapes("qwen3moe", &[fused]), [expected]);

    let error = |tensors: &[(&str, &str, usize, &[usize])]| {
        let e = weights_of("qwen3moe", &checkpoint(tensors), &json!({})).unwrap_err();
        e.message().to_string()
    };
    let gap = error(&[first, one("model.layers.0.mlp.experts.2.down_proj.weight")]);
    assert!(
        gap.contains("experts.1.down_proj.weight is missing"),
        "{gap}"
    );
    let wide = (
        "model.layers.0.mlp.experts.1.down_proj.weight",
        "F32",
        4,
        [2, 4].as_slice(),
    );
    let other = error(&[first, wide]);
    assert!(other.contains("differ in type, shape"), "{other}");
}

#[test]
fn positions_may_start_after_the_padding() {
    let file = checkpoint(&[("embeddings.position_embeddings.weight", "F32", 4, &[5, 2])]);
    let rows = |padding: Value| {
        let config = json!({ "model_type": "roberta", "pad_token_id": padding });
        let config = HfConfig::parse(&config.to_string()).unwrap();
        let adjustments = Adjustments {
            skipped_module: None,
            position_offset: config.position_offset().unwrap(),
            predicts_after: None,
        };
        let arch = arch::find("bert").unwrap();
        collect(&file, arch, &Quantization::default(), &adjustments)
    };
    let weight = rows(json!(1)).unwrap().remove(0);
    assert_eq!((weight.rows, weight.cols), (3, 2));
    assert_eq!(
        weight.codes.bytes(&file),
        &file.bytes(&file.tensors[0])[16..]
    );
    let e = rows(json!(7)).unwrap_err();
    assert!(
        e.message().contains("has 5 rows, expected rows 8 to 5"),
        "{e}"
    );
}
