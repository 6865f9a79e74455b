//! Codes whose scales are separate tensors, as in safetensors checkpoints.

use super::bytes::{HIGH_BITS, map_bytes};
use super::chunk::{CHUNK, Chunk, GROUP};
use super::matrix::Matrix;
use super::mxfp4::doubled;
use bytemuck::cast;

/// `BITS` bits per code, starting at the lowest bit of little-endian words: the affine modes of MLX
/// (`mx.quantize`), `x = scale q + bias`.
///
/// 8-bit codes become signed by subtracting 128; the minimum compensates for it.
#[inline(always)]
pub(super) fn affine<const BITS: usize>(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    m.scales_into(row, first, out);
    let count = CHUNK.min(m.cols - first);
    let bytes = &m.row(row)[first / 8 * BITS..][..count / 8 * BITS];
    let offset = if BITS == 8 { HIGH_BITS } else { 0 };
    for (q, codes) in out
        .q
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(bytes.as_chunks().0)
    {
        *q = cast((expand_codes::<BITS>(codes) ^ offset).to_le_bytes());
    }
    if BITS == 8 {
        for (scale, min) in out.scale.iter().zip(&mut out.min) {
            *min += 128.0 * scale;
        }
    }
}

/// Expands eight codes of `BITS` bits to the bytes of a word.
#[inline(always)]
fn expand_codes<const BITS: usize>(codes: &[u8; BITS]) -> u64 {
    let mut word = [0; 8];
    word[..BITS].copy_from_slice(codes);
    let mut word = u64::from_le_bytes(word);
    // Moves the upper half of each lane to its place, then halves the lane width.
    for (half, lanes) in [(4, 1), (2, 0x1_0000_0001), (1, 0x0001_0001_0001_0001)] {
        let mask = ((1 << (half * BITS)) - 1) * lanes;
        word = word & mask | (word >> (half * BITS) & mask) << (half * 8);
    }
    word
}

/// 4-bit floats, the first of a pair in the low nibble: MLX's modes `mxfp4` and `nvfp4`.
#[inline(always)]
pub(super) fn e2m1(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    m.scales_into(row, first, out);
    for scale in &mut out.scale {
        *scale *= 0.5;
    }
    let count = CHUNK.min(m.cols - first);
    let bytes = &m.row(row)[first / 2..][..count / 2];
    for (q, codes) in out.q.as_chunks_mut().0.iter_mut().zip(bytes.as_chunks().0) {
        let codes: [[u8; 4]; 4] = cast::<[u8; 16], _>(*codes);
        map_bytes::<32>(q, &cast(codes.each_ref().map(expand_codes)), doubled);
    }
}

/// Signed bytes.
#[inline(always)]
pub(super) fn int8(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    m.scales_into(row, first, out);
    let count = CHUNK.min(m.cols - first);
    let bytes = &m.row(row)[first..][..count];
    for (q, byte) in out.q.iter_mut().zip(bytes) {
        *q = byte.cast_signed();
    }
}

/// Four rows per byte, starting at the lowest bits: row `r` of quarter `i` of the matrix is in bits
/// `2 i` of packed row `r`; `q = code - 1` (BitNet in `transformers`).
#[inline(always)]
pub(super) fn ternary(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    m.scales_into(row, first, out);
    let quarter = m.rows / 4;
    let shift = 2 * (row / quarter);
    let count = CHUNK.min(m.cols - first);
    let bytes = &m.bytes[row % quarter * m.cols + first..][..count];
    for (q, byte) in out.q.iter_mut().zip(bytes) {
        *q = (byte >> shift & 3).cast_signed() - 1;
    }
}

/// 8-bit floats, decoded: `x = scale e4m3(code)`.
#[inline(always)]
pub(super) fn e4m3(m: &Matrix<'_>, row: usize, first: usize, out: &mut [f32; CHUNK]) {
    let count = CHUNK.min(m.cols - first);
    let bytes = &m.row(row)[first..][..count];
    for (x, byte) in out.iter_mut().zip(bytes) {
        *x = tabla_core::scales::e4m3(*byte);
    }
    for (g, x) in out[..count].chunks_mut(GROUP).enumerate() {
        let [scale, _] = match &m.scales {
            Some(scales) => scales.at(row, first + g * GROUP, m.cols),
            None => [1.0, 0.0],
        };
        for x in x {
            *x *= scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Matrix, Scales, decode_row_of};
    use tabla_core::dtype::DType;

    const ROWS: usize = 8;
    const COLS: usize = 320;

    /// All byte values.
    fn bytes(count: usize) -> Vec<u8> {
        let bytes = (0..count).map(|i| (i * i * 31 + i * 7 + i / 256).to_le_bytes()[0]);
        bytes.collect()
    }

    /// Compares each element with its formula: number `i` of the tensor, with a scale per group of two
    /// rows and 64 columns, and with a bias per group if there is a first one.
    fn check(dtype: DType, first_bias: Option<f32>, number: impl Fn(&[u8], usize) -> f32) {
        let codes = bytes(usize::try_from(dtype.bytes((ROWS * COLS) as u64).unwrap()).unwrap());
        let group = |i: usize| (i / COLS / 2) * (COLS / 64) + i % COLS / 64;
        let scale = |i| group(i) as f32 * 0.25 + 1.0;
        let bias = |i| first_bias.map_or(0.0, |first| first + group(i) as f32);
        let list = |of: &dyn Fn(usize) -> f32| -> Vec<u8> {
            let groups = (0..ROWS / 2).flat_map(|r| (0..COLS / 64).map(move |c| (2 * r, 64 * c)));
            groups
                .flat_map(|(r, c)| of(r * COLS + c).to_le_bytes())
                .collect()
        };
        let (scales, offsets) = (list(&scale), list(&bias));
        let matrix = Matrix {
            bytes: &codes,
            scales: Some(Scales {
                float: DType::F32,
                bytes: &scales,
                biases: first_bias.map_or(&[][..], |_| &offsets),
                group: [2, 64],
            }),
            rows: ROWS,
            cols: COLS,
        };
        let mut row = [0.0; COLS];
        for r in 0..ROWS {
            decode_row_of(dtype, &matrix, r, &mut row);
            for (i, x) in (r * COLS..).zip(row) {
                let expected = scale(i) * number(&codes, i) + bias(i);
                assert!(
                    (x - expected).abs() <= 1e-4,
                    "{dtype}, element {i}: {x} {expected}"
                );
            }
        }
    }

    #[test]
    fn affine_codes_are_a_bit_stream() {
        let types = [
            (DType::Affine2, 2),
            (DType::Affine3, 3),
            (DType::Affine4, 4),
            (DType::Affine5, 5),
            (DType::Affine6, 6),
            (DType::Affine8, 8),
        ];
        for (dtype, bits) in types {
            check(dtype, Some(-7.0), |codes, i| {
                let bit = |n: usize| u32::from(codes[n / 8] >> (n % 8) & 1);
                (0..bits).map(|k| (bit(i * bits + k) << k) as f32).sum()
            });
        }
    }

    #[test]
    fn decodes_e2m1() {
        check(DType::E2m1, None, |codes, i| {
            let code = codes[i / 2] >> (i % 2 * 4) & 15;
            let (exponent, mantissa) = (i32::from(code >> 1 & 3), f32::from(code & 1));
            let magnitude = match exponent {
                0 => mantissa * 0.5,
                _ => (1.0 + mantissa * 0.5) * 2f32.powi(exponent - 1),
            };
            if code & 8 == 0 { magnitude } else { -magnitude }
        });
    }

    #[test]
    fn decodes_int8_and_ternary() {
        check(DType::I8, None, |codes, i| {
            f32::from(codes[i].cast_signed())
        });
        check(DType::Ternary, None, |codes, i| {
            let (r, c) = (i / COLS, i % COLS);
            let code = codes[r % (ROWS / 4) * COLS + c] >> (r / (ROWS / 4) * 2) & 3;
            f32::from(code) - 1.0
        });
    }
}
