//! `Q4_1`: an f16 scale `d`, an f16 minimum `m`, then 16 bytes; `x = d q + m` (`block_q4_1` in
//! ggml-common.h).
//!
//! Byte `i` holds element `i` in its low nibble and element `i + 16` in its high one.

use super::bytes::{nibbles, to_bytes};
use super::fit;
use super::section::{
    Section::{self, Field},
    plane,
};
use bytemuck::{Pod, Zeroable, cast, from_bytes};
use std::array::from_fn;
use tabla_core::scales::f16;

/// Elements of a block.
pub const ELEMENTS: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 20;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    m: [u8; 2],
    qs: [u8; 16],
}

/// `x[i] = d q[i] + m`.
#[inline(always)]
pub fn unpack(
    block: &[u8; BYTES],
    q: &mut [i8; ELEMENTS],
    scale: &mut [f32; 2],
    min: &mut [f32; 2],
) {
    let Block { d, m, qs } = from_bytes(block);
    *q = cast(nibbles(qs));
    scale.fill(f16(*d));
    min.fill(f16(*m));
}

/// Encodes a block. Without importance, `m = min x` and `d = (max x - m) / 15`, like ggml's
/// reference; otherwise with the scale and minimum of smallest weighted error.
pub fn encode(x: &[f32; ELEMENTS], importance: Option<&[f32; ELEMENTS]>) -> [u8; BYTES] {
    let fit::FittedBlock { d, min, q } = fit::affine(x, importance, 15.0);
    pack([d, min], &q)
}

/// Packs a scale, a minimum and codes from 0 to 15.
pub(super) fn pack([d, min]: [half::f16; 2], q: &[u8; ELEMENTS]) -> [u8; BYTES] {
    to_bytes(Block {
        d: d.to_le_bytes(),
        m: min.to_le_bytes(),
        qs: from_fn(|i| q[i] | q[i + 16] << 4),
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![plane(0, 4), Field(0..4)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded;
    use tabla_core::dtype::DType;

    #[test]
    fn matches_block_computed_by_hand() {
        // From 1 to 8.5: m = 1 and d = 0.5.
        let x: [f32; ELEMENTS] = from_fn(|i| 1.0 + 0.5 * (i % 16) as f32);
        let block = encode(&x, None);
        assert_eq!(block[..4], [0x00, 0x38, 0x00, 0x3c]);
        assert_eq!(block[4..6], [0x00, 0x11]);
        assert_eq!(block[19], 0xff);
        assert_eq!(decoded(DType::Q4_1, &block), x);
    }

    #[test]
    fn equal_numbers_encode_as_minimum() {
        assert_eq!(
            decoded(DType::Q4_1, &encode(&[2.5; ELEMENTS], None)),
            [2.5; ELEMENTS]
        );
    }
}
