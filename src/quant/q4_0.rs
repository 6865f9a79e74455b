//! `Q4_0`: an f16 scale `d`, then 16 bytes; `x = d (q - 8)` (`block_q4_0` of ggml-common.h).
//!
//! Byte `i` holds element `i` in its low nibble and element `i + 16` in its high one.

use super::{f16, less, nibbles};
use bytemuck::{Pod, Zeroable, cast, from_bytes};

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
    *q = cast(nibbles(qs).map(|word| less(word, 8)));
    scale.fill(f16(*d));
}

/// `d = m / -8` for the `m` of greatest magnitude, `q = floor(x / d + 8.5)`, as ggml's reference.
pub fn encode(x: &[f32; ELEMENTS]) -> [u8; BYTES] {
    let largest = x
        .iter()
        .fold(0.0f32, |m, &x| if x.abs() > m.abs() { x } else { m });
    let d = largest / -8.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let nibble = |x: f32| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0.5 to 16.5 by the choice of d; the cast is the floor"
        )]
        let q = (x * inverse + 8.5) as u8;
        q.min(15)
    };
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&half::f16::from_f32_const(d).to_le_bytes());
    for i in 0..16 {
        block[2 + i] = nibble(x[i]) | nibble(x[i + 16]) << 4;
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
        // -8 has the greatest magnitude, so d = 1 and q = x + 8.
        let x: [f32; ELEMENTS] = std::array::from_fn(|i| (i % 16) as f32 - 8.0);
        let block = encode(&x);
        assert_eq!(block[..2], [0x00, 0x3c], "1 in f16 is 0x3c00");
        assert_eq!(block[2..4], [0x00, 0x11]);
        assert_eq!(block[17], 0xff);
        assert_eq!(decoded(DType::Q4_0, &block), x);
    }

    #[test]
    fn the_sign_of_the_scale_follows_the_largest() {
        let mut x = [0.0; ELEMENTS];
        x[3] = 4.0;
        let block = encode(&x);
        assert_eq!(block[..2], [0x00, 0xb8], "-0.5 in f16 is 0xb800");
        assert_eq!(decoded(DType::Q4_0, &block), x);
        assert_eq!(
            decoded(DType::Q4_0, &encode(&[0.0; ELEMENTS])),
            [0.0; ELEMENTS]
        );
    }
}
