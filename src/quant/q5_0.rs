//! `Q5_0`: an f16 scale `d`, then 32 numbers of 5 bits; `x = d (q - 16)` (`block_q5_0` of
//! ggml-common.h).
//!
//! Byte `i` of `qs` holds element `i` in its low nibble and element `i + 16` in its high one; bit
//! `i` of `qh` is the fifth bit of element `i`.

use super::{each2, f16};
use bytemuck::{Pod, Zeroable, cast, cast_mut, from_bytes};

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

/// Bit `i` of four bytes as byte `i`, which is 16 or 0.
#[inline(always)]
pub(super) fn fifth_bits(bits: [u8; 4]) -> [[u8; 16]; 2] {
    // Each byte eight times, one bit of each kept; adding carries it to the top of its byte.
    cast(bits.map(|b| {
        let one = (u64::from(b) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
        let top = (one + 0x7f7f_7f7f_7f7f_7f7f) & 0x8080_8080_8080_8080;
        (top >> 3).to_le_bytes()
    }))
}

/// `x[i] = d (q[i] - 16)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS], scale: &mut [f32; 2], _: &mut [f32; 2]) {
    let Block { d, qh, qs } = from_bytes(block);
    let [low, high]: &mut [[i8; 16]; 2] = cast_mut(q);
    let [a, b] = &fifth_bits(*qh);
    each2(low, qs, a, |q, h| (q & 15 | h).wrapping_sub(16));
    each2(high, qs, b, |q, h| (q >> 4 | h).wrapping_sub(16));
    scale.fill(f16(*d));
}
