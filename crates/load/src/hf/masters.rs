//! Weights of training of ternary models, which are rounded while loading (`WeightQuant` in
//! `transformers`): `x = s round(x / s)`, from -1 to 1, where `s` is the mean magnitude of the matrix.

use crate::dtype::DType;
use crate::error::{Result, bail};
use crate::format::Directory;
use crate::quant::{self, Matrix};
use crate::weight::{Data, Scaling, Weight, f32_bytes};

/// Minimum scale.
const SCALE_MIN: f32 = 1e-5;

/// Independent sums, so that additions do not wait for each other.
const LANES: usize = 8;

/// Rounds a matrix of floats to ternary values with one scale, packed four rows per byte.
///
/// # Errors
///
/// `Unsupported` for a number of rows that is not a multiple of four.
pub(super) fn ternarized(weight: Weight, file: &Directory) -> Result<Weight> {
    let [rows, cols] = [weight.rows, weight.cols].map(|n| n as usize);
    if !rows.is_multiple_of(4) {
        bail!(
            Unsupported,
            "tensor {}: {rows} rows, expected a multiple of 4 for ternary weights",
            weight.tensor(file)
        );
    }
    let matrix = Matrix {
        bytes: weight.codes.bytes(file),
        scales: None,
        rows,
        cols,
    };
    let mut row = vec![0.0; cols];
    let mut read = |r: usize, each: &mut dyn FnMut(&[f32])| {
        quant::decode_row_of(weight.dtype, &matrix, r, &mut row);
        each(&row);
    };
    let mut sum = 0.0;
    for r in 0..rows {
        read(r, &mut |row| sum += magnitudes(row));
    }
    let scale = mean(sum, rows * cols).max(SCALE_MIN);
    let quarter = rows / 4;
    let mut codes = vec![0; quarter * cols];
    for r in 0..rows {
        let packed = &mut codes[r % quarter * cols..][..cols];
        let shift = 2 * (r / quarter);
        read(r, &mut |row| {
            for (byte, x) in packed.iter_mut().zip(row) {
                *byte |= digit(x / scale) << shift;
            }
        });
    }
    Ok(Weight {
        dtype: DType::Ternary,
        scales: Some(Scaling {
            float: DType::F32,
            scales: Data::computed(weight.codes.tensor, f32_bytes(&[scale])),
            biases: None,
            group: [rows, cols].map(|n| n.max(1)),
        }),
        codes: Data::computed(weight.codes.tensor, codes),
        ..weight
    })
}

/// Returns the sum of the magnitudes. In f64, so that its order has no effect on the rounded mean.
fn magnitudes(row: &[f32]) -> f64 {
    let (blocks, rest) = row.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for block in blocks {
        for (sum, x) in sums.iter_mut().zip(block) {
            *sum += f64::from(x.abs());
        }
    }
    let rest: f64 = rest.iter().map(|x| f64::from(x.abs())).sum();
    sums.iter().sum::<f64>() + rest
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the mean of f32 magnitudes is in the range of f32"
)]
fn mean(sum: f64, count: usize) -> f32 {
    (sum / count.max(1) as f64) as f32
}

/// Returns the nearest ternary value plus 1.
fn digit(x: f32) -> u8 {
    // Halves are rounded to even, which is 0.
    u8::from(x > 0.5) + u8::from(x >= -0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_the_nearest_ternary_values() {
        let digits = [-7.0, -0.51, -0.5, 0.0, 0.5, 0.51, 1.5].map(digit);
        assert_eq!(digits, [0, 0, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn sums_include_all_elements() {
        let row: Vec<f32> = (0..19u8).map(|i| f32::from(i) - 9.0).collect();
        assert!((magnitudes(&row) - 90.0).abs() < 1e-12);
        assert!((mean(90.0, 19) - 90.0 / 19.0).abs() < 1e-6);
    }
}
