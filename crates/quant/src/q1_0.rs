//! `Q1_0`: an f16 scale `d`, then 128 signs (`block_q1_0` in ggml-common.h).
//!
//! Bit `i % 8` of byte `i / 8` is the sign of element `i`: 1 is `d`, 0 is `-d`.

use super::bytes::to_bytes;
use super::section::{
    Section::{self, Field},
    signs,
};
use bytemuck::{Pod, Zeroable, from_bytes};
use std::array::from_fn;
use tabla_core::scales::f16;

/// Elements of a block.
pub const ELEMENTS: usize = 128;
/// Bytes of a block.
pub const BYTES: usize = 18;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qs: [u8; 16],
}

/// `x[i] = d q[i]`, where `q` is -1 or 1.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS], scale: &mut [f32; 8], _: &mut [f32; 8]) {
    let Block { d, qs } = from_bytes(block);
    for (q, signs) in q.as_chunks_mut::<8>().0.iter_mut().zip(qs) {
        *q = from_fn(|i| ((signs >> i & 1) << 1).cast_signed() - 1);
    }
    scale.fill(f16(*d));
}

/// Encodes a block: `d` is the mean magnitude, like ggml's reference.
pub fn encode(x: &[f32; ELEMENTS], _: Option<&[f32; ELEMENTS]>) -> [u8; BYTES] {
    // In ggml's order, so that the rounded sum is the same.
    let sum = x.iter().fold(0.0, |sum, x| sum + x.abs());
    let d = half::f16::from_f32_const(sum / ELEMENTS as f32);
    let signs = |x: &[f32; 8]| (0..8).fold(0, |byte, i| byte | u8::from(x[i] >= 0.0) << i);
    to_bytes(Block {
        d: d.to_le_bytes(),
        qs: from_fn(|i| signs(&x.as_chunks().0[i])),
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![signs(), Field(0..2)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded;
    use tabla_core::dtype::DType;

    #[test]
    fn signs_round_trip() {
        let x: [f32; ELEMENTS] = from_fn(|i| if i * i % 5 < 2 { 0.5 } else { -0.5 });
        let block = encode(&x, None);
        assert_eq!(block[..2], [0x00, 0x38], "0.5 in f16 is 0x3800");
        assert_eq!(decoded(DType::Q1_0, &block), x);
        assert_eq!(encode(&[0.0; ELEMENTS], None)[2..], [0xff; 16]);
    }
}
