//! `TQ2_0`: 256 ternary values of 2 bits and an f16 scale `d` (`block_tq2_0` in ggml-common.h).
//!
//! 32 bytes hold 128 elements: four groups of 32, the first in the lowest bits.

use super::bytes::{ONES, map_words, sub_bytes, to_bytes};
use super::chunk::CHUNK;
use super::section::{
    Section::{self, Field},
    ternary,
};
use super::{fit, q2_k};
use bytemuck::{Pod, Zeroable, cast_mut, from_bytes};
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 66;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    qs: [[u8; 32]; 2],
    d: [u8; 2],
}

/// `x[i] = d (q[i] - 1)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let Block { qs, d } = from_bytes(block);
    let halves: &mut [[[i8; 32]; 4]; 2] = cast_mut(q);
    for (parts, qs) in halves.iter_mut().zip(qs) {
        for (part, q) in parts.iter_mut().enumerate() {
            map_words(q, qs, |w| sub_bytes(w >> (2 * part) & (3 * ONES), 1));
        }
    }
    scale.fill(f16(*d));
}

/// Returns the scale and the ternary values plus 1.
pub(super) fn digits(x: &[f32; CHUNK]) -> ([u8; 2], [u8; CHUNK]) {
    let d = fit::largest(x).abs();
    let q = fit::quantize(x, d, |v| v.round().clamp(-1.0, 1.0) + 1.0);
    (half::f16::from_f32_const(d).to_le_bytes(), q)
}

/// Encodes a block: `d = max |x|`, `q = round(x / d)`, ties away from zero, like ggml's reference.
pub fn encode(x: &[f32; CHUNK], _: Option<&[f32; CHUNK]>) -> [u8; BYTES] {
    let (d, q) = digits(x);
    to_bytes(Block {
        qs: q2_k::pack(q),
        d,
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![ternary(), Field(64..66)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded;
    use tabla_core::dtype::DType;

    #[test]
    fn ternary_values_round_trip() {
        let x: [f32; CHUNK] = std::array::from_fn(|i| 0.5 * ((i * i + i / 7) % 3) as f32 - 0.5);
        let block = encode(&x, None);
        assert_eq!(block[64..], [0x00, 0x38], "0.5 in f16 is 0x3800");
        assert_eq!(decoded(DType::Tq2_0, &block), x);
        assert_eq!(
            decoded(DType::Tq2_0, &encode(&[0.0; CHUNK], None)),
            [0.0; CHUNK]
        );
    }
}
