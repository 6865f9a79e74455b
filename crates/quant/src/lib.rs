//! Storage types: memory layout, decoding and encoding.
//!
//! There is one file per block format. The decoding of a format is written once, as
//! [`Ints::unpack`] or [`Floats::decode`]: the CPU kernels compile it for their instruction sets,
//! and it is the reference for shaders.

mod bytes;
mod chunk;
mod codes;
mod digits;
mod exact;
mod fit;
mod float;
mod formats;
pub mod i2_s;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod iq_grids;
mod layout;
mod matrix;
pub mod mxfp4;
pub mod nvfp4;
pub mod q1_0;
pub mod q2_0;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod q8_k;
mod read;
mod section;
pub mod tq1_0;
pub mod tq2_0;

pub use chunk::{CHUNK, Chunk, GROUP};
pub use digits::one_scale;
pub use exact::{EXACT_TYPES, encode_exact};
pub use formats::{Encode, encoder, sections, visit};
pub use matrix::Matrix;
pub use read::{Floats, Ints, Visit};
pub use section::Section;
use tabla_core::dtype::DType;
pub use tabla_core::scales::Scales;

/// Decodes a row of `row.len()` numbers. `bytes` must be a matrix of one row; for `I2_S`, a whole
/// tensor.
///
/// # Panics
///
/// If `bytes` does not have the size of `row.len()` numbers, or the type has no real numbers.
pub fn decode_row(dtype: DType, bytes: &[u8], row: &mut [f32]) {
    assert_eq!(
        dtype.bytes(row.len() as u64),
        Some(bytes.len() as u64),
        "{dtype}: got {} bytes for {} numbers",
        bytes.len(),
        row.len()
    );
    let matrix = Matrix {
        bytes,
        scales: None,
        rows: 1,
        cols: row.len(),
    };
    decode_row_of(dtype, &matrix, 0, row);
}

/// Decodes row `row` of a matrix into `out`, which must have the length of a row.
///
/// # Panics
///
/// If the matrix has no such row, or the type has no real numbers.
pub fn decode_row_of(dtype: DType, matrix: &Matrix<'_>, row: usize, out: &mut [f32]) {
    struct Row<'a>(&'a Matrix<'a>, usize, &'a mut [f32]);
    impl Visit for Row<'_> {
        type Out = ();
        fn ints<T: Ints>(self) {
            self.floats::<T>();
        }
        fn floats<T: Floats>(self) {
            let Self(matrix, row, out) = self;
            let mut chunk = [0.0; CHUNK];
            for (first, out) in (0..).step_by(CHUNK).zip(out.chunks_mut(CHUNK)) {
                T::decode(matrix, row, first, &mut chunk);
                out.copy_from_slice(&chunk[..out.len()]);
            }
        }
    }
    assert_eq!(
        out.len(),
        matrix.cols,
        "output length must be the number of columns"
    );
    visit(dtype, Row(matrix, row, out))
        .unwrap_or_else(|| panic!("{dtype} cannot be decoded to floats"));
}

/// Encodes a row and appends its bytes.
///
/// # Panics
///
/// If the row is not a whole number of blocks, or the type has no [`encoder`].
pub fn encode_row(dtype: DType, row: &[f32], bytes: &mut Vec<u8>) {
    let Some(encode) = encoder(dtype) else {
        panic!("no encoder for {dtype}");
    };
    encode(row, None, bytes);
}

/// Decodes some blocks.
#[cfg(test)]
fn decoded(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let facts = dtype.facts();
    let mut row = vec![0.0; bytes.len() / facts.bytes * facts.block];
    decode_row(dtype, bytes, &mut row);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An asymmetric ramp, so that errors in signs and minima are visible.
    fn ramp() -> Vec<f32> {
        (0..64u8).map(|i| f32::from(i) * 0.25 - 3.0).collect()
    }

    #[test]
    fn row_round_trips_within_half_a_step() {
        // Step sizes of the second block, whose largest number is 12.75.
        let steps = [
            (DType::F32, 0.0),
            (DType::F16, 0.0),
            (DType::Bf16, 0.0625),
            (DType::Q8_0, 12.75 / 127.0),
            (DType::Q4_0, 12.75 / 7.0),
            (DType::Q4_1, 7.75 / 15.0),
        ];
        let row = ramp();
        for (dtype, step) in steps {
            let mut bytes = Vec::new();
            encode_row(dtype, &row, &mut bytes);
            let mut back = vec![0.0; row.len()];
            decode_row(dtype, &bytes, &mut back);
            for (x, y) in row.iter().zip(&back) {
                assert!((x - y).abs() <= step * 0.51 + 0.01, "{dtype}: {x} {y}");
            }
        }
    }

    /// Expected bytes from `quantize` of the package gguf 0.19 for `(37 i mod 64) / 8 - 3.3`.
    #[test]
    fn bytes_match_gguf() {
        let row: Vec<f32> = (0..64u16)
            .map(|i| f32::from(i * 37 % 64) * 0.125 - 3.3)
            .collect();
        let known = [
            (
                DType::Q8_0,
                "9c28a425c747ea6a0caf2fd252f47517b93adc5cff7f21c444e66709ab2cce4ef1\
                 717c2814b438d75bfb7f1fbe42e26606a529c94ded7110b034d458f77b1bbb3fde6202",
            ),
            (
                DType::Q4_0,
                "93b8ae268c0369c147ad257bd359b1379c1473b8379d147bd258b0269c046ac248ae258b",
            ),
            (
                DType::Q4_1,
                "33389ac240d962fb952eb751da730c953ec851ea11385ac2c851ea731da63fc862fb841db740d962",
            ),
        ];
        for (dtype, hex) in known {
            let mut bytes = Vec::new();
            encode_row(dtype, &row, &mut bytes);
            let ours: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(ours, hex, "{dtype}");
        }
    }

    /// Expected bytes from `quantize_row_q1_0_ref` and `quantize_row_q2_0_ref` of llama.cpp for the same
    /// numbers.
    #[test]
    fn bytes_match_ggml() {
        let row: Vec<f32> = (0..128u16)
            .map(|i| f32::from(i * 37 % 64) * 0.125 - 3.3)
            .collect();
        let of_64 = "934494196546996546995166985166941965";
        let known = [
            (DType::Q1_0, "1a406ab55aabd55aadd66ab55aabd55aadd6"),
            (DType::Q2_0, &of_64.repeat(2)),
        ];
        for (dtype, hex) in known {
            let mut bytes = Vec::new();
            encode_row(dtype, &row, &mut bytes);
            let ours: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(ours, hex, "{dtype}");
        }
    }

    /// Normally distributed numbers (Box-Muller).
    fn normal(elements: usize) -> Vec<f32> {
        let mut state = 1u32;
        let mut even = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 8) as f32 + 0.5) / 16_777_216.0
        };
        let mut one = |_| (-2.0 * even().ln()).sqrt() * (std::f32::consts::TAU * even()).cos();
        (0..elements).map(&mut one).collect()
    }

    /// Relative root mean square error of each type on normally distributed numbers; comments give
    /// the error of `quantize_*` in ggml 0.25 if it differs.
    const ERRORS: [(DType, f64); 15] = [
        (DType::Q8_0, 0.0054),
        (DType::Q6K, 0.0173), // 0.0178
        (DType::Q5_1, 0.0380),
        (DType::Q5K, 0.0354), // 0.0363
        (DType::Q5_0, 0.0430),
        (DType::Q4_1, 0.0785),
        (DType::Q4K, 0.0714),   // 0.0719
        (DType::Iq4Nl, 0.0743), // 0.0764
        (DType::Q4_0, 0.0865),
        (DType::Q3K, 0.145), // 0.151
        (DType::Q2K, 0.270), // 0.298
        (DType::Tq1_0, 0.81),
        (DType::Tq2_0, 0.81),
        (DType::Q1_0, 0.600),
        (DType::Q2_0, 0.716),
    ];

    /// Weighted error of a row encoded with this importance.
    fn error(dtype: DType, x: &[f32], importance: Option<&[f32]>, weights: &[f32]) -> f64 {
        let (mut bytes, mut y) = (Vec::new(), vec![0.0; x.len()]);
        encoder(dtype).unwrap()(x, importance, &mut bytes);
        decode_row(dtype, &bytes, &mut y);
        let square = |(x, w): (f32, &f32)| f64::from(x) * f64::from(x) * f64::from(*w);
        let errors = x.iter().zip(&y).map(|(x, y)| x - y);
        let error: f64 = errors.zip(weights).map(square).sum();
        let all: f64 = x.iter().copied().zip(weights).map(square).sum();
        (error / all).sqrt()
    }

    #[test]
    fn errors_match_documented_values() {
        let x = normal(1 << 16);
        for (dtype, stated) in ERRORS {
            let found = error(dtype, &x, None, &vec![1.0; x.len()]);
            assert!((found / stated - 1.0).abs() < 0.02, "{dtype}: {found}");
        }
    }

    #[test]
    fn importance_lowers_weighted_error() {
        let x = normal(1 << 14);
        // A few columns dominate, as in models.
        let weights: Vec<f32> = normal(1 << 14).iter().rev().map(|w| w.powi(4)).collect();
        // Formats with a fixed scale ignore the importance.
        let fixed = [
            DType::Q8_0,
            DType::Tq1_0,
            DType::Tq2_0,
            DType::Q1_0,
            DType::Q2_0,
        ];
        for (dtype, _) in ERRORS.into_iter().filter(|(d, _)| !fixed.contains(d)) {
            let without = error(dtype, &x, None, &weights);
            let with = error(dtype, &x, Some(&weights), &weights);
            assert!(with < 0.97 * without, "{dtype}: {with} {without}");
        }
    }

    #[test]
    fn extreme_numbers_are_encoded() {
        let rows = [
            ("zeros", [0.0; 256]),
            ("equal", [-3.0; 256]),
            ("tiny", [1e-30; 256]),
            ("least", [f32::from_bits(1); 256]),
            ("huge", [f32::MAX; 256]),
        ];
        for (dtype, _) in ERRORS {
            for (name, row) in &rows {
                for importance in [None, Some([0.0; 256]), Some([f32::MAX; 256])] {
                    let (mut bytes, mut back) = (Vec::new(), [1.0; 256]);
                    encoder(dtype).unwrap()(row, importance.as_ref().map(|w| &w[..]), &mut bytes);
                    decode_row(dtype, &bytes, &mut back);
                    let near = |x: f32, y: f32| (x - y).abs() <= 0.1 * x.abs() + 1e-6;
                    let same = row.iter().zip(&back).all(|(x, y)| near(*x, *y));
                    // Numbers outside the range of f16 are the caller's responsibility.
                    assert!(same || *name == "huge", "{dtype} {name}: {back:?}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "q4_0: got 18 bytes for 31 numbers")]
    fn rejects_partial_block() {
        decode_row(DType::Q4_0, &[0; 18], &mut [0.0; 31]);
    }
}
