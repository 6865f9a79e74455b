//! `NVFP4`: four scales of 8 bits, then 64 floats of 4 bits (`block_nvfp4` in ggml-common.h); the scale
//! of the tensor is a separate tensor.
//!
//! Bytes `8 s` to `8 s + 7` hold the sixteen elements of scale `s`: the first eight in the low nibbles,
//! the others in the high ones.

use super::bytes::{map_bytes, to_bytes};
use super::chunk::{CHUNK, Chunk, GROUP};
use super::matrix::Matrix;
use super::mxfp4::doubled;
use bytemuck::{Pod, Zeroable, cast, from_bytes};
use std::array::from_fn;

/// Elements of a block.
pub const ELEMENTS: usize = 64;
/// Bytes of a block.
pub const BYTES: usize = 36;

const SCALES: usize = ELEMENTS / GROUP;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; SCALES],
    qs: [[u8; GROUP / 2]; SCALES],
}

/// `x[i] = scale(d) q[i]` times the scale of the tensor, where `q` is twice the float. The product of the
/// scales is rounded to f32 once.
#[inline(always)]
pub(super) fn unpack(m: &Matrix<'_>, row: usize, first: usize, out: &mut Chunk) {
    let bytes = &m.row(row)[first / ELEMENTS * BYTES..];
    let blocks = bytes.as_chunks::<BYTES>().0.iter();
    let q = out.q.as_chunks_mut::<ELEMENTS>().0.iter_mut();
    let scales = out.scale.as_chunks_mut::<SCALES>().0.iter_mut();
    for ((block, q), scales) in blocks.zip(q).zip(scales) {
        let Block { d, qs } = from_bytes(block);
        for (q, pairs) in q.as_chunks_mut::<GROUP>().0.iter_mut().zip(qs) {
            let nibbles = [pairs.map(|pair| pair & 15), pairs.map(|pair| pair >> 4)];
            map_bytes::<GROUP>(q, &cast(nibbles), doubled);
        }
        *scales = d.map(scale);
    }
    if let Some(tensor) = &m.scales {
        let [factor, _] = tensor.at(row, first, m.cols);
        for scale in &mut out.scale[..(m.cols - first).min(CHUNK) / GROUP] {
            *scale *= factor;
        }
    }
}

/// Half the value of an unsigned E4M3 float, because values are doubled. As in ggml, the top bit is
/// ignored, and 0x7f, the code of NaN, is 0.
#[inline(always)]
pub fn scale(d: u8) -> f32 {
    let magnitude = u32::from(d & 0x7f);
    // The exponent bias is 7 in E4M3 and 127 in f32.
    let normal = f32::from_bits((magnitude << 20) + ((127 - 7 - 1) << 23));
    let subnormal = magnitude as f32 * (1.0 / 1024.0);
    let value = if magnitude < 8 { subnormal } else { normal };
    if d == 0x7f { 0.0 } else { value }
}

/// Packs the scales and the elements of a block, whose first element of each pair is in the low nibble.
pub fn pack(d: [u8; SCALES], pairs: &[u8; ELEMENTS / 2]) -> [u8; BYTES] {
    let element = |i: usize| pairs[i / 2] >> (i % 2 * 4) & 15;
    let group = |s: usize| {
        let first = s * GROUP;
        from_fn(|i| element(first + i) | element(first + GROUP / 2 + i) << 4)
    };
    to_bytes(Block {
        d,
        qs: from_fn(group),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode_row_of;
    use tabla_core::dtype::DType;
    use tabla_core::scales::{Scales, e4m3};

    #[test]
    fn scales_are_half_of_e4m3() {
        for d in 0..0x7f {
            assert_eq!(scale(d), 0.5 * e4m3(d), "{d}");
        }
        assert_eq!([scale(0x7f), scale(0x80), scale(0xff)], [0.0, 0.0, 240.0]);
    }

    #[test]
    fn packed_blocks_keep_all_elements() {
        let pairs = from_fn(|i| (i * 37 + 11).to_le_bytes()[0]);
        // 1, 2, 4 and 8.
        let block = pack([0x38, 0x40, 0x48, 0x50], &pairs);
        let x = crate::decoded(DType::Nvfp4, &block);
        for (i, x) in x.into_iter().enumerate() {
            let code = pairs[i / 2] >> (i % 2 * 4) & 15;
            let doubled = super::super::mxfp4::DOUBLED[usize::from(code)];
            let scale = (1 << (i / GROUP)) as f32;
            assert_eq!(x, scale * f32::from(doubled) * 0.5, "element {i}");
        }
    }

    #[test]
    fn each_matrix_of_a_stack_has_its_scale() {
        // The scales of the blocks are 1 (0x38) and 2 (0x40), all floats 0.5 (code 1) and 6 (code 7).
        let mut block = [0x71; BYTES];
        block[..SCALES].copy_from_slice(&[0x38, 0x40, 0x38, 0x40]);
        let bytes = block.repeat(4 * 2);
        let factors = [0.25f32, -3.0].map(f32::to_le_bytes).concat();
        let matrix = Matrix {
            bytes: &bytes,
            scales: Some(Scales {
                float: DType::F32,
                bytes: &factors,
                biases: &[],
                group: [2, 128],
            }),
            rows: 4,
            cols: 128,
        };
        for (row, factor) in [0.25, 0.25, -3.0, -3.0].into_iter().enumerate() {
            let mut x = [0.0; 128];
            decode_row_of(DType::Nvfp4, &matrix, row, &mut x);
            for (i, x) in x.into_iter().enumerate() {
                let float = if i % 16 < 8 { 0.5 } else { 6.0 };
                let block = if i / 16 % 2 == 0 { 1.0 } else { 2.0 };
                assert_eq!(x, factor * block * float, "row {row}, element {i}");
            }
        }
    }
}
