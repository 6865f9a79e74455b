//! `Q2_0`: an f16 scale `d`, then 64 codes of 2 bits; `x = d (q - 1)` (`block_q2_0` in ggml-common.h).
//!
//! Byte `i / 4` holds element `i` in bits `2 (i % 4)` and above.

use super::bytes::to_bytes;
use super::fit;
use super::section::{
    Section::{self, Field},
    ternary,
};
use bytemuck::{Pod, Zeroable, from_bytes};
use std::array::from_fn;
use tabla_core::scales::f16;

/// Elements of a block.
pub const ELEMENTS: usize = 64;
/// Bytes of a block.
pub const BYTES: usize = 18;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qs: [u8; 16],
}

/// `x[i] = d (q[i] - 1)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS], scale: &mut [f32; 4], _: &mut [f32; 4]) {
    let Block { d, qs } = from_bytes(block);
    for (q, codes) in q.as_chunks_mut::<4>().0.iter_mut().zip(qs) {
        *q = from_fn(|i| (codes >> (2 * i) & 3).cast_signed() - 1);
    }
    scale.fill(f16(*d));
}

/// Encodes a block: `d = max |x|`, `q = round(x / d) + 1`, ties away from zero, like ggml's reference,
/// which does not use the code of `2 d`.
pub fn encode(x: &[f32; ELEMENTS], _: Option<&[f32; ELEMENTS]>) -> [u8; BYTES] {
    let d = fit::largest(x).abs();
    let q = fit::quantize(x, d, |v| v.round().clamp(-1.0, 2.0) + 1.0);
    to_bytes(Block {
        d: half::f16::from_f32_const(d).to_le_bytes(),
        qs: from_fn(|i| (0..4).fold(0, |byte, k| byte | q[4 * i + k] << (2 * k))),
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![ternary(), Field(0..2)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded;
    use tabla_core::dtype::DType;

    #[test]
    fn ternary_values_round_trip() {
        let x: [f32; ELEMENTS] = from_fn(|i| 0.5 * ((i * i + i / 7) % 3) as f32 - 0.5);
        let block = encode(&x, None);
        assert_eq!(block[..2], [0x00, 0x38], "0.5 in f16 is 0x3800");
        assert_eq!(decoded(DType::Q2_0, &block), x);
        assert_eq!(
            decoded(DType::Q2_0, &encode(&[0.0; ELEMENTS], None)),
            [0.0; ELEMENTS]
        );
    }

    #[test]
    fn the_largest_code_is_twice_the_scale() {
        let mut block = [0b1110_0100; BYTES];
        block[..2].copy_from_slice(&[0x00, 0x38]);
        let four = [-0.5, 0.0, 0.5, 1.0];
        assert_eq!(decoded(DType::Q2_0, &block), four.repeat(ELEMENTS / 4));
    }
}
