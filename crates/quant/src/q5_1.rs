//! `Q5_1`: an f16 scale `d`, an f16 minimum `m`, then 32 numbers of 5 bits; `x = d q + m`
//! (`block_q5_1` in ggml-common.h).
//!
//! Nibbles and fifth bits are stored as in `Q5_0`.

use super::bytes::{nibbles, to_bytes};
use super::fit;
use super::q5_0::{fifth_bits, pack_fifth_bits};
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
pub const BYTES: usize = 24;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    m: [u8; 2],
    qh: [u8; 4],
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
    let Block { d, m, qh, qs } = from_bytes(block);
    let (nibbles, fifth) = (nibbles(qs), fifth_bits(*qh));
    *q = cast(from_fn::<_, 4, _>(|i| nibbles[i] | fifth[i]));
    scale.fill(f16(*d));
    min.fill(f16(*m));
}

/// Encodes a block. Without importance, `m = min x` and `d = (max x - m) / 31`, like ggml's
/// reference; otherwise with the scale and minimum of smallest weighted error.
pub fn encode(x: &[f32; ELEMENTS], importance: Option<&[f32; ELEMENTS]>) -> [u8; BYTES] {
    let fit::FittedBlock { d, min, q } = fit::affine(x, importance, 31.0);
    pack([d, min], &q)
}

/// Packs a scale, a minimum and codes from 0 to 31.
pub(super) fn pack([d, min]: [half::f16; 2], q: &[u8; ELEMENTS]) -> [u8; BYTES] {
    to_bytes(Block {
        d: d.to_le_bytes(),
        m: min.to_le_bytes(),
        qh: pack_fifth_bits(q),
        qs: from_fn(|i| q[i] & 15 | q[i + 16] << 4),
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![plane(0, 4), plane(4, 1), Field(0..4)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded;
    use tabla_core::dtype::DType;

    #[test]
    fn matches_block_computed_by_hand() {
        // From 1 to 16.5: m = 1 and d = 0.5.
        let x: [f32; ELEMENTS] = from_fn(|i| 1.0 + 0.5 * i as f32);
        for importance in [None, Some(&[1.0; ELEMENTS])] {
            let block = encode(&x, importance);
            assert_eq!(block[..4], [0x00, 0x38, 0x00, 0x3c]);
            assert_eq!(block[4..8], [0, 0, 0xff, 0xff], "the upper half is over 15");
            assert_eq!((block[8], block[23]), (0x00, 0xff));
            assert_eq!(decoded(DType::Q5_1, &block), x);
        }
    }
}
