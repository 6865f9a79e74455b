//! `Q4_0`: an f16 scale `d`, then 16 bytes; `x = d (q - 8)` (`block_q4_0` in ggml-common.h).
//!
//! Byte `i` holds element `i` in its low nibble and element `i + 16` in its high one.

use super::bytes::{nibbles, sub_bytes, to_bytes};
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
pub const BYTES: usize = 18;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qs: [u8; 16],
}

/// `x[i] = d (q[i] - 8)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS], scale: &mut [f32; 2], _: &mut [f32; 2]) {
    let Block { d, qs } = from_bytes(block);
    *q = cast(nibbles(qs).map(|word| sub_bytes(word, 8)));
    scale.fill(f16(*d));
}

/// Encodes a block. Without importance, `d = m / -8` for the `m` of largest magnitude, like ggml's
/// reference; otherwise with the scale of smallest weighted error.
pub fn encode(x: &[f32; ELEMENTS], importance: Option<&[f32; ELEMENTS]>) -> [u8; BYTES] {
    let fit::FittedBlock { d, q, .. } = fit::symmetric(x, importance, 8.0);
    pack(d, &q)
}

/// Packs a scale and codes from 0 to 15.
pub(super) fn pack(d: half::f16, q: &[u8; ELEMENTS]) -> [u8; BYTES] {
    to_bytes(Block {
        d: d.to_le_bytes(),
        qs: from_fn(|i| q[i] | q[i + 16] << 4),
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![plane(0, 4), Field(0..2)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded;
    use tabla_core::dtype::DType;

    #[test]
    fn matches_block_computed_by_hand() {
        // -8 has the largest magnitude, so d = 1 and q = x + 8.
        let x: [f32; ELEMENTS] = from_fn(|i| (i % 16) as f32 - 8.0);
        let block = encode(&x, None);
        assert_eq!(block[..2], [0x00, 0x3c], "1 in f16 is 0x3c00");
        assert_eq!(block[2..4], [0x00, 0x11]);
        assert_eq!(block[17], 0xff);
        assert_eq!(decoded(DType::Q4_0, &block), x);
    }

    #[test]
    fn scale_has_opposite_sign_of_largest_number() {
        let mut x = [0.0; ELEMENTS];
        x[3] = 4.0;
        let block = encode(&x, None);
        assert_eq!(block[..2], [0x00, 0xb8], "-0.5 in f16 is 0xb800");
        assert_eq!(decoded(DType::Q4_0, &block), x);
        assert_eq!(
            decoded(DType::Q4_0, &encode(&[0.0; ELEMENTS], None)),
            [0.0; ELEMENTS]
        );
    }
}
