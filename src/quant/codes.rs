//! Codes whose scales lie in a tensor of their own, as safetensors checkpoints store them.

use super::mxfp4::doubled;
use super::{CHUNK, Chunk, Matrix, TOPS, each};
use bytemuck::cast;

/// `BITS` bits a code, one after the other from the lowest bit of little-endian words: the affine
/// modes of MLX (`mx.quantize`), `x = scale q + bias`.
///
/// Codes of 8 bits are stored less 128, which their bias makes up for: `q` is signed.
#[inline(always)]
pub(super) fn affine<const BITS: usize>(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    m.scales_into(row, first, out);
    let count = CHUNK.min(m.cols - first);
    let bytes = &m.row(row)[first / 8 * BITS..][..count / 8 * BITS];
    let offset = if BITS == 8 { TOPS } else { 0 };
    for (q, codes) in out
        .q
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(bytes.as_chunks().0)
    {
        *q = cast((bytes_of::<BITS>(codes) ^ offset).to_le_bytes());
    }
    if BITS == 8 {
        for (scale, min) in out.scale.iter().zip(&mut out.min) {
            *min += 128.0 * scale;
        }
    }
}

/// Eight codes of `BITS` bits as the bytes of a word.
#[inline(always)]
fn bytes_of<const BITS: usize>(codes: &[u8; BITS]) -> u64 {
    let mut word = [0; 8];
    word[..BITS].copy_from_slice(codes);
    let mut word = u64::from_le_bytes(word);
    // The upper half of each lane moves up to where it belongs, then lanes are half as wide.
    for (half, lanes) in [(4, 1), (2, 0x1_0000_0001), (1, 0x0001_0001_0001_0001)] {
        let mask = ((1 << (half * BITS)) - 1) * lanes;
        word = word & mask | (word >> (half * BITS) & mask) << (half * 8);
    }
    word
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
    for (q, codes) in out.q.as_chunks_mut().0.iter_mut().zip(bytes.as_chunks().0) {
        let codes: [[u8; 4]; 4] = cast::<[u8; 16], _>(*codes);
        each::<32>(q, &cast(codes.each_ref().map(bytes_of)), doubled);
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
