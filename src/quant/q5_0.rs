//! `Q5_0`: an f16 scale `d`, then 32 numbers of 5 bits; `x = d (q - 16)` (`block_q5_0` of
//! ggml-common.h).
//!
//! Byte `i` of `qs` holds element `i` in its low nibble and element `i + 16` in its high one; bit
//! `i` of `qh` is the fifth bit of element `i`.

use super::{ONES, TOPS, f16, less, nibbles};
use bytemuck::{Pod, Zeroable, cast, from_bytes};
use std::array::from_fn;

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

/// Bit `i` of four bytes as byte `i` of four words, which is 16 or 0.
#[inline(always)]
pub(super) fn fifth_bits(bits: [u8; 4]) -> [u64; 4] {
    bits.map(|byte| {
        // The byte eight times, one bit of each kept, which carries it to the top.
        let one = (u64::from(byte) * ONES) & 0x8040_2010_0804_0201;
        ((one + (TOPS - ONES)) & TOPS) >> 3
    })
}

/// `x[i] = d (q[i] - 16)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS], scale: &mut [f32; 2], _: &mut [f32; 2]) {
    let Block { d, qh, qs } = from_bytes(block);
    let (nibbles, fifth) = (nibbles(qs), fifth_bits(*qh));
    *q = cast(from_fn::<_, 4, _>(|i| less(nibbles[i] | fifth[i], 16)));
    scale.fill(f16(*d));
}
