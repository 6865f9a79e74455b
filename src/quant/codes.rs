//! Codes whose scales lie in a tensor of their own, as safetensors checkpoints store them.

use super::mxfp4::doubled;
use super::{CHUNK, Chunk, Matrix};

/// Codes of a block.
const BLOCK: usize = 32;

/// `BITS` bits a code, one after the other from the lowest bit of little-endian words: the affine
/// modes of MLX (`mx.quantize`), `x = scale q + bias`.
///
/// Codes of 8 bits are stored less 128, which their bias makes up for: `q` is signed.
#[inline(always)]
pub(super) fn affine<const BITS: usize>(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    m.scales_into(row, first, out);
    let bytes = &m.row(row)[first / 8 * BITS..];
    let blocks = CHUNK.min(m.cols - first) / BLOCK;
    let offset = if BITS == 8 { 128 } else { 0 };
    for b in 0..blocks {
        // Eight codes are BITS bytes.
        for i in 0..BLOCK / 8 {
            let at = (b * (BLOCK / 8) + i) * BITS;
            let mut word = [0; 8];
            word[..BITS].copy_from_slice(&bytes[at..at + BITS]);
            let word = u64::from_le_bytes(word);
            let q = &mut out.q[b * BLOCK + i * 8..][..8];
            for (j, q) in q.iter_mut().enumerate() {
                let [code, ..] = (word >> (j * BITS) & ((1 << BITS) - 1)).to_le_bytes();
                *q = code.wrapping_sub(offset).cast_signed();
            }
        }
    }
    if BITS == 8 {
        for (scale, min) in out.scale.iter().zip(&mut out.min) {
            *min += 128.0 * scale;
        }
    }
}

/// Floats of 4 bits, the first of a pair in the low half of its byte: MLX's modes `mxfp4` and
/// `nvfp4`.
#[inline(always)]
pub(super) fn e2m1(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    m.scales_into(row, first, out);
    for scale in &mut out.scale {
        *scale *= 0.5;
    }
    let count = CHUNK.min(m.cols - first);
    let bytes = &m.row(row)[first / 2..][..count / 2];
    for (pair, byte) in out.q.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [byte & 15, byte >> 4].map(|nibble| doubled(nibble).cast_signed());
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

/// Four rows a byte, from the lowest bits: row `r` of a quarter `i` of the matrix lies in bits
/// `2 i` of row `r` of the packed one; `q = code - 1` (BitNet in `transformers`).
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

/// Floats of 8 bits, decoded: `x = scale e4m3(code)`.
#[inline(always)]
pub(super) fn e4m3(m: &Matrix<'_>, row: usize, first: usize, out: &mut [f32; CHUNK]) {
    let count = CHUNK.min(m.cols - first);
    let bytes = &m.row(row)[first..][..count];
    for (x, byte) in out.iter_mut().zip(bytes) {
        *x = super::matrix::e4m3(*byte);
    }
    for (g, x) in out[..count].chunks_mut(super::GROUP).enumerate() {
        let [scale, _] = match &m.scales {
            Some(scales) => scales.at(row, first + g * super::GROUP, m.cols),
            None => [1.0, 0.0],
        };
        for x in x {
            *x *= scale;
        }
    }
}
