//! `Q8_0`: an f16 scale `d`, then 32 signed bytes `q`; `x = d q` (`block_q8_0` in ggml-common.h).

use super::section::{
    Section::{self, Field},
    plane,
};
use bytemuck::{Pod, Zeroable, from_bytes};
use tabla_core::scales::f16;

/// Elements of a block.
pub const ELEMENTS: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 34;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qs: [i8; ELEMENTS],
}

/// `x[i] = d q[i]`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS], scale: &mut [f32; 2], _: &mut [f32; 2]) {
    let Block { d, qs } = from_bytes(block);
    q.copy_from_slice(qs);
    scale.fill(f16(*d));
}

/// Encodes a block: `d = max |x| / 127`, `q = round(x / d)`, ties away from zero, like ggml's
/// reference.
pub fn encode(x: &[f32; ELEMENTS], _: Option<&[f32; ELEMENTS]>) -> [u8; BYTES] {
    let largest = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let d = largest / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&half::f16::from_f32_const(d).to_le_bytes());
    for (q, x) in block[2..].iter_mut().zip(x) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "within ±127 by the choice of d"
        )]
        let rounded = (x * inverse).round() as i8;
        *q = rounded.cast_unsigned();
    }
    block
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![plane(0, 8), Field(0..2)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded;
    use tabla_core::dtype::DType;

    #[test]
    fn matches_block_computed_by_hand() {
        // The largest is 127 / 64, so d = 1 / 64 exactly.
        let x: [f32; ELEMENTS] = std::array::from_fn(|i| (i as f32 - 16.0) / 64.0);
        let mut x = x;
        x[31] = 127.0 / 64.0;
        let block = encode(&x, None);
        assert_eq!(block[..2], [0x00, 0x24], "1 / 64 in f16 is 0x2400");
        assert_eq!(block[2].cast_signed(), -16);
        assert_eq!(block[33].cast_signed(), 127);
        assert_eq!(decoded(DType::Q8_0, &block), x);
    }

    #[test]
    fn zeros_round_trip() {
        assert_eq!(encode(&[0.0; ELEMENTS], None), [0; BYTES]);
        assert_eq!(decoded(DType::Q8_0, &[0; BYTES]), [0.0; ELEMENTS]);
    }
}
