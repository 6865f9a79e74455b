//! `IQ4_NL`: an f16 scale `d`, then 32 nibbles that point into a table; `x = d t[q]`
//! (`block_iq4_nl` of ggml-common.h).
//!
//! Byte `i` holds element `i` in its low nibble and element `i + 16` in its high one.

use super::{each, f16};
use bytemuck::{Pod, Zeroable, cast_mut, from_bytes};

/// Elements of a block.
pub const ELEMENTS: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 18;

/// The numbers that nibbles stand for (`kvalues_iq4nl` of ggml-common.h).
pub const VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qs: [u8; 16],
}

/// The number of a nibble.
#[inline(always)]
pub(super) fn value(nibble: u8) -> u8 {
    VALUES[usize::from(nibble & 15)].cast_unsigned()
}

/// `x[i] = d t[q[i]]`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS], scale: &mut [f32; 2], _: &mut [f32; 2]) {
    let Block { d, qs } = from_bytes(block);
    let [low, high]: &mut [[i8; 16]; 2] = cast_mut(q);
    each(low, qs, value);
    each(high, qs, |b| value(b >> 4));
    scale.fill(f16(*d));
}
