//! Tests of packed formats with random codes, compared with the formula of each element.

use super::weights_of;
use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::{Directory, open_bytes};
use crate::quant::{Matrix, decode_row_of, encode_row};
use crate::weight::{Weight, f32_bytes};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tabla_testkit::fixed_json;

const ROWS: usize = 32;
const COLS: usize = 128;
const GROUP: usize = 32;
const COLS_U32: u32 = 128;
const GROUP_U32: u32 = 32;

/// Type, shape and bytes of the tensors of `lm_head`, by suffix.
pub(super) type Tensors = BTreeMap<&'static str, (&'static str, Vec<usize>, Vec<u8>)>;

fn file(tensors: &Tensors) -> Directory {
    let (mut header, mut data) = (Map::new(), Vec::<u8>::new());
    for (suffix, (dtype, shape, bytes)) in tensors {
        let from = data.len();
        data.extend(bytes);
        let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [from, data.len()] });
        header.insert(format!("lm_head.{suffix}"), entry);
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend(data);
    open_bytes("test", bytes).unwrap()
}

pub(super) fn load(tensors: &Tensors, how: &Value) -> Result<(Directory, Weight)> {
    let file = file(tensors);
    let config = json!({ "quantization_config": how });
    let mut weights = weights_of("llama", &file, &config)?;
    match weights.pop() {
        Some(weight) if weights.is_empty() => Ok((file, weight)),
        _ => bail!(Internal, "expected one weight"),
    }
}

#[track_caller]
pub(super) fn assert_rejected(tensors: &Tensors, how: &Value, part: &str) {
    let e = load(tensors, how).expect_err(part);
    assert!(e.message().contains(part), "expected {part:?} in: {e}");
}

/// Pseudorandom numbers below `end`.
fn random(seed: u32, count: usize, end: u32) -> Vec<u32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % end
    };
    (0..count).map(|_| next()).collect()
}

/// Packs fields bit by bit into 32-bit words.
fn stream(fields: &[u32], bits: usize) -> Vec<u32> {
    let mut words = vec![0; (fields.len() * bits).div_ceil(32)];
    for (i, field) in fields.iter().enumerate() {
        for bit in 0..bits {
            let at = i * bits + bit;
            words[at / 32] |= (field >> bit & 1) << (at % 32);
        }
    }
    words
}

/// Transposes a matrix of `cols` columns.
fn transposed<T: Copy>(matrix: &[T], cols: usize) -> Vec<T> {
    let rows = matrix.len() / cols;
    let each = (0..cols).flat_map(|col| (0..rows).map(move |row| row * cols + col));
    each.map(|i| matrix[i]).collect()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn halves(numbers: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_row(DType::F16, numbers, &mut bytes);
    bytes
}

/// A random matrix.
struct Model {
    bits: usize,
    codes: Vec<u32>,
    /// Of each row and group.
    zeros: Vec<u32>,
    scales: Vec<f32>,
    /// Group of each column.
    order: Vec<u32>,
}

impl Model {
    fn new(bits: usize) -> Self {
        let groups = ROWS * COLS / GROUP;
        // Up to 11 bits, as in f16.
        let scale = |n: u32| (n as f32 + 1.0) / 4096.0;
        Self {
            bits,
            codes: random(1, ROWS * COLS, 1 << bits),
            zeros: random(2, groups, 1 << bits),
            scales: random(3, groups, 2047).into_iter().map(scale).collect(),
            order: (0..COLS_U32).map(|col| col / GROUP_U32).collect(),
        }
    }

    /// Multiplies the columns by a number without common divisor, so that groups are scattered.
    fn scattered(mut self) -> Self {
        self.order = (0..COLS_U32)
            .map(|col| col * 37 % COLS_U32 / GROUP_U32)
            .collect();
        self
    }

    fn at(&self, row: usize, col: usize) -> f32 {
        let group = row * (COLS / GROUP) + self.order[col] as usize;
        let q = self.codes[row * COLS + col].cast_signed() - self.zeros[group].cast_signed();
        self.scales[group] * q as f32
    }

    fn by_group<T: Copy>(of_rows: &[T]) -> Vec<T> {
        transposed(of_rows, COLS / GROUP)
    }

    /// Returns the tensors of GPTQ, where stored zero points are less by `offset`.
    fn gptq(&self, offset: u32) -> Tensors {
        let (groups, mask) = (COLS / GROUP, (1u32 << self.bits) - 1);
        let rows = self.codes.chunks(COLS);
        let codes: Vec<u32> = rows.flat_map(|row| stream(row, self.bits)).collect();
        let word_rows = codes.len() / ROWS;
        let zeros: Vec<u32> = Self::by_group(&self.zeros);
        let stored = zeros.chunks(ROWS).flat_map(|row| {
            let row: Vec<u32> = row.iter().map(|z| z.wrapping_sub(offset) & mask).collect();
            stream(&row, self.bits)
        });
        let stored: Vec<u32> = stored.collect();
        Tensors::from([
            (
                "qweight",
                (
                    "I32",
                    vec![word_rows, ROWS],
                    words(&transposed(&codes, word_rows)),
                ),
            ),
            (
                "qzeros",
                ("I32", vec![groups, stored.len() / groups], words(&stored)),
            ),
            (
                "scales",
                (
                    "F16",
                    vec![groups, ROWS],
                    halves(&Self::by_group(&self.scales)),
                ),
            ),
            ("g_idx", ("I32", vec![COLS], words(&self.order))),
        ])
    }

    /// Returns the tensors of AWQ.
    fn awq(&self) -> Tensors {
        let groups = COLS / GROUP;
        let pack = |of_inputs: &[u32]| -> Vec<u32> {
            let eight = of_inputs.chunks(8);
            // From the lowest bits on, outputs 0, 2, 4, 6, 1, 3, 5 and 7.
            let output = |i: usize| if i < 4 { 2 * i } else { 2 * i - 7 };
            let word = |c: &[u32]| (0..8).fold(0, |word, i| word | c[output(i)] << (4 * i));
            eight.map(word).collect()
        };
        let codes = pack(&transposed(&self.codes, COLS));
        let zeros = pack(&Self::by_group(&self.zeros));
        let scales = halves(&Self::by_group(&self.scales));
        Tensors::from([
            ("qweight", ("I32", vec![COLS, ROWS / 8], words(&codes))),
            ("qzeros", ("I32", vec![groups, ROWS / 8], words(&zeros))),
            ("scales", ("F16", vec![groups, ROWS], scales)),
        ])
    }

    /// Returns the tensors of `pack-quantized`.
    fn packed(&self) -> Tensors {
        let groups = COLS / GROUP;
        let rows = self.codes.chunks(COLS);
        let codes: Vec<u32> = rows.flat_map(|row| stream(row, self.bits)).collect();
        let zeros: Vec<u32> = Self::by_group(&self.zeros)
            .chunks(ROWS)
            .flat_map(|row| stream(row, self.bits))
            .collect();
        let zero_rows = zeros.len() / groups;
        let zeros = words(&transposed(&zeros, zero_rows));
        let shape = [ROWS as u64, COLS as u64].map(u64::to_le_bytes).concat();
        Tensors::from([
            (
                "weight_packed",
                ("I32", vec![ROWS, codes.len() / ROWS], words(&codes)),
            ),
            (
                "weight_scale",
                ("F16", vec![ROWS, groups], halves(&self.scales)),
            ),
            ("weight_shape", ("I64", vec![2], shape)),
            ("weight_zero_point", ("I32", vec![zero_rows, groups], zeros)),
        ])
    }

    #[track_caller]
    fn assert_loads(&self, tensors: &Tensors, how: &Value, dtype: DType) {
        let (file, weight) = load(tensors, how).unwrap();
        assert_eq!((weight.rows, weight.cols), (32, 128));
        assert_eq!(weight.dtype, dtype);
        let matrix = Matrix {
            bytes: weight.codes.bytes(&file),
            scales: weight.scales(&file),
            rows: ROWS,
            cols: COLS,
        };
        let mut x = [0.0; COLS];
        for row in 0..ROWS {
            decode_row_of(weight.dtype, &matrix, row, &mut x);
            for (col, x) in x.into_iter().enumerate() {
                assert_eq!(x, self.at(row, col), "{dtype}: row {row}, column {col}");
            }
        }
    }
}

const AFFINE: [(usize, DType); 4] = [
    (2, DType::Affine2),
    (3, DType::Affine3),
    (4, DType::Affine4),
    (8, DType::Affine8),
];

fn gptq(bits: usize) -> Value {
    json!({ "quant_method": "gptq", "bits": bits, "group_size": GROUP, "desc_act": false })
}

#[test]
fn gptq_codes_are_exact() {
    for (bits, dtype) in AFFINE {
        let model = Model::new(bits);
        model.assert_loads(&model.gptq(1), &gptq(bits), dtype);
        let mut second = gptq(bits);
        second["checkpoint_format"] = json!("gptq_v2");
        let mut tensors = model.gptq(0);
        model.assert_loads(&tensors, &second, dtype);
        // Without act-order, the groups of columns are optional.
        tensors.remove("g_idx");
        model.assert_loads(&tensors, &second, dtype);
        let scattered = Model::new(bits).scattered();
        scattered.assert_loads(&scattered.gptq(1), &gptq(bits), DType::F32);
    }
}

#[test]
fn rules_for_modules_allow_other_sizes() {
    let model = Model::new(8);
    let mut how = gptq(4);
    let tensors = model.gptq(1);
    assert_rejected(&tensors, &how, "expected codes of 4 bits");
    how["dynamic"] = fixed_json!({ "+:.*head": { "bits": 8 } });
    model.assert_loads(&tensors, &how, DType::Affine8);
}

#[test]
fn rejects_gptq_tensors_that_contradict_each_other() {
    let (model, how) = (Model::new(4), gptq(4));
    let change = |suffix: &'static str, shape: &[usize]| {
        let mut tensors = model.gptq(1);
        let (_, own, bytes) = tensors.get_mut(suffix).unwrap();
        let size = bytes.len() / own.iter().product::<usize>();
        *own = shape.to_vec();
        bytes.resize(size * shape.iter().product::<usize>(), 0);
        tensors
    };
    let cases: [(Tensors, &str); 7] = [
        (change("qzeros", &[4, 3]), "expected codes of 4 bits"),
        (
            change("qzeros", &[3, 4]),
            "32 rows of 128 columns have 3 groups, expected groups of 32 columns",
        ),
        (
            change("scales", &[4, 31]),
            "lm_head.scales is f16 [4, 31], expected f16 or bf16 or f32 [4, 32]",
        ),
        (
            change("g_idx", &[127]),
            "lm_head.g_idx is i32 [127], expected i32 [128]",
        ),
        (
            change("qweight", &[15, 32]),
            "lm_head.g_idx is i32 [128], expected i32 [120]",
        ),
        (
            change("qweight", &[1, 16, 32]),
            "lm_head.qweight is i32 [1, 16, 32]",
        ),
        (change("qweight", &[16, 0]), "0 outputs"),
    ];
    for (tensors, part) in &cases {
        assert_rejected(tensors, &how, part);
    }
    for suffix in ["qzeros", "scales", "qweight"] {
        let mut tensors = model.gptq(1);
        tensors.remove(suffix);
        let part = match suffix {
            "qweight" => "lm_head.weight is missing".to_string(),
            _ => format!("tensor lm_head.{suffix} is missing"),
        };
        assert_rejected(&tensors, &how, &part);
    }
}

#[test]
fn rejects_gptq_values_out_of_range() {
    let (model, how) = (Model::new(4), gptq(4));
    let mut tensors = model.gptq(1);
    tensors.remove("g_idx");
    let mut ordered = how.clone();
    ordered["desc_act"] = json!(true);
    assert_rejected(&tensors, &ordered, "tensor lm_head.g_idx is missing");
    for group in [4i32, -1] {
        let mut tensors = model.gptq(1);
        tensors.get_mut("g_idx").unwrap().2[8..12].copy_from_slice(&group.to_le_bytes());
        let part = format!("lm_head.g_idx: column 2 is in group {group}, expected 0 to 3");
        assert_rejected(&tensors, &how, &part);
    }
    let mut tensors = model.gptq(1);
    tensors.get_mut("scales").unwrap().2[..2].copy_from_slice(&[0, 0x7c]);
    assert_rejected(
        &tensors,
        &how,
        "lm_head.scales: scale 0 is inf, expected a finite number",
    );
    let none = fixed_json!({ "quant_method": "fp8" });
    assert_rejected(
        &model.gptq(1),
        &none,
        "quant_method is not \"gptq\" or \"awq\"",
    );
    let mut tensors = model.gptq(1);
    let bias = ("F32", vec![ROWS], f32_bytes(&[0.5; ROWS]));
    tensors.insert("bias", bias);
    let weights = weights_of(
        "llama",
        &file(&tensors),
        &json!({ "quantization_config": how }),
    );
    assert_eq!(weights.unwrap().len(), 2);
}

#[test]
fn awq_codes_are_exact() {
    let model = Model::new(4);
    let how = json!({ "quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "GEMM" });
    model.assert_loads(&model.awq(), &how, DType::Affine4);
    let mut tensors = model.awq();
    tensors.remove("qzeros");
    assert_rejected(&tensors, &how, "tensor lm_head.qzeros is missing");
    let mut tensors = model.awq();
    tensors.get_mut("qzeros").unwrap().1 = vec![8, 2];
    assert_rejected(
        &tensors,
        &how,
        "lm_head.qzeros is i32 [8, 2], expected i32 or u32 [8, 4]",
    );
    let mut tensors = model.awq();
    tensors.get_mut("scales").unwrap().1 = vec![32, 4];
    assert_rejected(&tensors, &how, "lm_head.scales is f16 [32, 4]");
    let groups = fixed_json!({ "quant_method": "awq", "bits": 4, "group_size": 64 });
    assert_rejected(
        &model.awq(),
        &groups,
        "have 4 groups, expected groups of 64 columns",
    );
}

#[test]
fn packed_integers_are_exact() {
    let how = fixed_json!({ "quant_method": "compressed-tensors", "format": "pack-quantized" });
    for (bits, dtype) in AFFINE {
        let mut model = Model::new(bits);
        let mut tensors = model.packed();
        model.assert_loads(&tensors, &how, dtype);
        tensors.remove("weight_zero_point");
        model.zeros.fill(1 << (bits - 1));
        model.assert_loads(&tensors, &how, dtype);
        let model = model.scattered();
        tensors.insert("weight_g_idx", ("I32", vec![COLS], words(&model.order)));
        model.assert_loads(&tensors, &how, DType::F32);
    }
}

#[test]
fn packed_integers_without_exact_biases_are_decoded() {
    let how = fixed_json!({ "quant_method": "compressed-tensors", "format": "pack-quantized" });
    let mut model = Model::new(4);
    for scale in &mut model.scales {
        *scale *= 1.0 + f32::EPSILON;
    }
    let mut tensors = model.packed();
    let scale = tensors.get_mut("weight_scale").unwrap();
    (scale.0, scale.2) = ("F32", f32_bytes(&model.scales));
    model.assert_loads(&tensors, &how, DType::F32);
}

#[test]
fn rejects_packed_tensors_that_contradict_each_other() {
    let how = fixed_json!({ "quant_method": "compressed-tensors", "format": "pack-quantized" });
    let model = Model::new(4);
    let with = |suffix: &'static str, tensor: (&'static str, Vec<usize>, Vec<u8>)| {
        let mut tensors = model.packed();
        tensors.insert(suffix, tensor);
        tensors
    };
    let shape = |rows: u64, cols: u64| {
        let bytes = [rows, cols].map(u64::to_le_bytes).concat();
        with("weight_shape", ("I64", vec![2], bytes))
    };
    let cases = [
        (
            shape(31, 128),
            "weight_packed is i32 [32, 16], expected i32 [31, 16]",
        ),
        (shape(32, 100), "rows of 16 words for 100 columns"),
        (shape(32, 0), "rows of 16 words for 0 columns"),
        (
            with("weight_shape", ("I64", vec![1], vec![0; 8])),
            "weight_shape is i64 [0], expected rows and columns",
        ),
        (
            with("weight_scale", ("F16", vec![32, 3], vec![0; 192])),
            "3 groups of 128 columns, expected groups of equal size",
        ),
        (
            with("weight_scale", ("F16", vec![4, 32], vec![0; 256])),
            "expected scales of the matrix, of 32 rows or of groups",
        ),
        (
            with("weight_zero_point", ("I32", vec![3, 4], vec![0; 48])),
            "weight_zero_point is i32 [3, 4], expected i32 or i8 [4, 4]",
        ),
        (
            with("weight_zero_point", ("I8", vec![3], vec![0; 3])),
            "weight_zero_point has 3 elements, expected 128",
        ),
        (
            with("weight_packed", ("F16", vec![4], vec![0; 8])),
            "weight_packed is f16, expected i32 or u8",
        ),
    ];
    for (tensors, part) in &cases {
        assert_rejected(tensors, &how, part);
    }
}
