//! `Q4_1`: an f16 scale `d`, an f16 minimum `m`, then 16 bytes; `x = d q + m` (`block_q4_1` of
//! ggml-common.h).
//!
//! Byte `i` holds element `i` in its low nibble and element `i + 16` in its high one.

use super::{f16, nibbles};
use bytemuck::{Pod, Zeroable, cast, from_bytes};

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

/// `m = min x`, `d = (max x - m) / 15`, `q = floor((x - m) / d + 0.5)`, as ggml's reference.
pub fn encode(x: &[f32; ELEMENTS]) -> [u8; BYTES] {
    let min = x.iter().fold(f32::INFINITY, |m, &x| m.min(x));
    let max = x.iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x));
    let d = (max - min) / 15.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let nibble = |x: f32| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0.5 to 15.5 by the choice of d; the cast is the floor"
        )]
        let q = ((x - min) * inverse + 0.5) as u8;
        q.min(15)
    };
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&half::f16::from_f32_const(d).to_le_bytes());
    block[2..4].copy_from_slice(&half::f16::from_f32_const(min).to_le_bytes());
    for i in 0..16 {
        block[4 + i] = nibble(x[i]) | nibble(x[i + 16]) << 4;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::quant::decoded;

    #[test]
    fn a_block_worked_by_hand() {
        // From 1 to 8.5: m = 1 and d = 0.5.
        let x: [f32; ELEMENTS] = std::array::from_fn(|i| 1.0 + 0.5 * (i % 16) as f32);
        let block = encode(&x);
        assert_eq!(block[..4], [0x00, 0x38, 0x00, 0x3c]);
        assert_eq!(block[4..6], [0x00, 0x11]);
        assert_eq!(block[19], 0xff);
        assert_eq!(decoded(DType::Q4_1, &block), x);
    }

    #[test]
    fn equal_numbers_are_their_minimum() {
        assert_eq!(
            decoded(DType::Q4_1, &encode(&[2.5; ELEMENTS])),
            [2.5; ELEMENTS]
        );
    }
}
