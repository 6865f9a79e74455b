//! Tests of packed 4-bit floats and of `bitsandbytes`, compared with the formula of each element.

use super::packed::{Tensors, assert_rejected, load};
use crate::dtype::DType;
use crate::quant::{Matrix, decode_row_of};
use crate::weight::f32_bytes;
use tabla_testkit::fixed_json;

fn nvfp4(scale: u8, divisor: f32, cols: usize) -> Tensors {
    let pairs: Vec<u8> = (0..cols).map(|i| (i * 37 + 5).to_le_bytes()[0]).collect();
    Tensors::from([
        ("weight_packed", ("U8", vec![2, cols / 2], pairs)),
        (
            "weight_scale",
            ("F8_E4M3", vec![2, cols / 16], vec![scale; cols / 8]),
        ),
        (
            "weight_global_scale",
            ("F32", vec![1], f32_bytes(&[divisor])),
        ),
    ])
}

#[test]
fn packed_floats_become_blocks() {
    let how =
        fixed_json!({ "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized" });
    let tensors = nvfp4(0x38, 4.0, 64);
    let (file, weight) = load(&tensors, &how).unwrap();
    assert_eq!(weight.dtype, DType::Nvfp4);
    let matrix = Matrix {
        bytes: weight.codes.bytes(&file),
        scales: weight.scales(&file),
        rows: 2,
        cols: 64,
    };
    let values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let pairs = &tensors["weight_packed"].2;
    for row in 0..2 {
        let mut x = [0.0; 64];
        decode_row_of(DType::Nvfp4, &matrix, row, &mut x);
        for (col, x) in x.into_iter().enumerate() {
            let code = pairs[row * 32 + col / 2] >> (col % 2 * 4) & 15;
            let magnitude: f32 = values[usize::from(code & 7)] / 4.0;
            let expected = if code < 8 { magnitude } else { -magnitude };
            assert_eq!(x, expected, "row {row}, column {col}");
        }
    }
    let cases = [
        (
            nvfp4(0xb8, 4.0, 64),
            "scale 0 is negative or not a number (byte 0xb8)",
        ),
        (nvfp4(0x38, 0.0, 64), "expected one positive number"),
        (
            nvfp4(0x38, 4.0, 32),
            "rows of 32 columns, expected a multiple of 64",
        ),
    ];
    for (tensors, part) in &cases {
        assert_rejected(tensors, &how, part);
    }
}

/// Returns the tensors of NF4 with one block per row of 64 columns.
fn nf4(state: &str) -> Tensors {
    let map: Vec<f32> = (0u8..16).map(|i| f32::from(i) / 8.0 - 1.0).collect();
    let state = state.as_bytes().to_vec();
    Tensors::from([
        ("weight", ("U8", vec![64, 1], (0..64).collect())),
        ("weight.absmax", ("F32", vec![2], f32_bytes(&[1.5, 3.0]))),
        ("weight.quant_map", ("F32", vec![16], f32_bytes(&map))),
        (
            "weight.quant_state.bitsandbytes__nf4",
            ("U8", vec![state.len()], state),
        ),
    ])
}

const STATE: &str =
    r#"{"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [2, 64]}"#;

#[test]
fn nf4_is_decoded_to_the_stated_type() {
    let how = fixed_json!({ "quant_method": "bitsandbytes", "load_in_4bit": true });
    let (file, weight) = load(&nf4(STATE), &how).unwrap();
    assert_eq!(
        (weight.dtype, weight.rows, weight.cols),
        (DType::F32, 2, 64)
    );
    let x: Vec<f32> = weight
        .codes
        .bytes(&file)
        .as_chunks()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect();
    // Byte 0x12: code 1, then code 2.
    assert_eq!(x[36..38], [-0.875 * 1.5, -0.75 * 1.5]);
    // Byte 0x3f in the second row.
    assert_eq!(x[126..], [-0.625 * 3.0, 0.875 * 3.0]);
    let half = STATE.replace("float32", "bfloat16");
    assert_eq!(load(&nf4(&half), &how).unwrap().1.dtype, DType::Bf16);
    let cases = [
        (
            STATE.replace("64,", "0,"),
            "blocksize: expected a positive integer, got 0",
        ),
        (
            STATE.replace("64,", "32,"),
            "weight.absmax is f32 [2], expected f32 [4]",
        ),
        (
            STATE.replace("[2", "[3"),
            "lm_head.weight is u8 [64, 1], expected u8 [96, 1]",
        ),
        (
            STATE.replace("[2, ", "["),
            "shape: expected rows and columns",
        ),
        (
            STATE.replace("float32", "int8"),
            "dtype: expected float16, bfloat16 or float32, got \"int8\"",
        ),
        (STATE.replace('}', ""), "bitsandbytes__nf4: invalid JSON"),
    ];
    for (state, part) in &cases {
        assert_rejected(&nf4(state), &how, part);
    }
    for suffix in ["weight.absmax", "weight.quant_map"] {
        let mut tensors = nf4(STATE);
        tensors.remove(suffix);
        assert_rejected(
            &tensors,
            &how,
            &format!("tensor lm_head.{suffix} is missing"),
        );
    }
}

#[test]
fn bytes_have_the_largest_magnitude_of_their_row() {
    let how = fixed_json!({ "quant_method": "bitsandbytes", "load_in_8bit": true });
    let mut tensors = Tensors::from([
        ("weight", ("I8", vec![2, 32], (0..64).collect())),
        ("SCB", ("F32", vec![2], f32_bytes(&[127.0, 254.0]))),
        ("weight_format", ("U8", vec![], vec![0])),
    ]);
    let (file, weight) = load(&tensors, &how).unwrap();
    let scales = weight.scales(&file).unwrap();
    assert_eq!((weight.dtype, scales.group), (DType::I8, [1, 32]));
    assert_eq!(scales.bytes, f32_bytes(&[1.0, 2.0]));
    tensors.get_mut("weight_format").unwrap().2 = vec![2];
    assert_rejected(&tensors, &how, "unsupported layout [2], expected 0 (rows)");
    tensors.get_mut("SCB").unwrap().1 = vec![1, 2];
    assert_rejected(
        &tensors,
        &how,
        "lm_head.SCB is f32 [1, 2], expected f32 [2]",
    );
}
