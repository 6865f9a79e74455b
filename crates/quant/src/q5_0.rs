//! `Q5_0`: an f16 scale `d`, then 32 numbers of 5 bits; `x = d (q - 16)` (`block_q5_0` in
//! ggml-common.h).
//!
//! Byte `i` of `qs` holds element `i` in its low nibble and element `i + 16` in its high one; bit
//! `i` of `qh` is the fifth bit of element `i`.

use super::bytes::{HIGH_BITS, ONES, nibbles, sub_bytes, to_bytes};
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
pub const BYTES: usize = 22;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qh: [u8; 4],
    qs: [u8; 16],
}

/// Expands each bit of four bytes to a byte of 16 or 0.
#[inline(always)]
pub(super) fn fifth_bits(bits: [u8; 4]) -> [u64; 4] {
    bits.map(|byte| {
        // Repeats the byte eight times and keeps one bit of each; the addition carries it to the
        // top bit.
        let one = (u64::from(byte) * ONES) & 0x8040_2010_0804_0201;
        ((one + (HIGH_BITS - ONES)) & HIGH_BITS) >> 3
    })
}

/// `x[i] = d (q[i] - 16)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS], scale: &mut [f32; 2], _: &mut [f32; 2]) {
    let Block { d, qh, qs } = from_bytes(block);
    let (nibbles, fifth) = (nibbles(qs), fifth_bits(*qh));
    *q = cast(from_fn::<_, 4, _>(|i| sub_bytes(nibbles[i] | fifth[i], 16)));
    scale.fill(f16(*d));
}

/// Returns bit 4 of each of 32 numbers.
pub(super) fn pack_fifth_bits(q: &[u8; ELEMENTS]) -> [u8; 4] {
    let bits = (0..32).fold(0, |bits, i| bits | u32::from(q[i] >> 4) << i);
    bits.to_le_bytes()
}

/// Encodes a block. Without importance, `d = m / -16` for the `m` of largest magnitude, like ggml's
/// reference; otherwise with the scale of smallest weighted error.
pub fn encode(x: &[f32; ELEMENTS], importance: Option<&[f32; ELEMENTS]>) -> [u8; BYTES] {
    let fit::FittedBlock { d, q, .. } = fit::symmetric(x, importance, 16.0);
    pack(d, &q)
}

/// Packs a scale and codes from 0 to 31.
pub(super) fn pack(d: half::f16, q: &[u8; ELEMENTS]) -> [u8; BYTES] {
    to_bytes(Block {
        d: d.to_le_bytes(),
        qh: pack_fifth_bits(q),
        qs: from_fn(|i| q[i] & 15 | q[i + 16] << 4),
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![plane(0, 4), plane(4, 1), Field(0..2)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded;
    use tabla_core::dtype::DType;

    #[test]
    fn matches_block_computed_by_hand() {
        // -16 has the largest magnitude, so d = 1 and q = x + 16.
        let x: [f32; ELEMENTS] = from_fn(|i| i as f32 - 16.0);
        let block = encode(&x, None);
        assert_eq!(block[..2], [0x00, 0x3c], "1 in f16 is 0x3c00");
        assert_eq!(block[2..6], [0, 0, 0xff, 0xff], "the upper half is over 15");
        assert_eq!((block[6], block[21]), (0x00, 0xff));
        assert_eq!(decoded(DType::Q5_0, &block), x);
    }
}
