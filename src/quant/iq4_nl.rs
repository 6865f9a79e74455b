//! `IQ4_NL`: an f16 scale `d`, then 32 nibbles that point into a table; `x = d t[q]`
//! (`block_iq4_nl` of ggml-common.h).
//!
//! Byte `i` holds element `i` in its low nibble and element `i + 16` in its high one.

use super::{each, f16, nibbles};
use bytemuck::{Pod, Zeroable, cast, from_bytes};

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
    // A bit chooses among neighbours: vectors have no tables.
    let mut values = VALUES;
    for bit in 0..4 {
        let mask = (nibble >> bit & 1).cast_signed().wrapping_neg();
        for i in 0..8 >> bit {
            let [a, b] = [values[2 * i], values[2 * i + 1]];
            values[i] = a ^ (a ^ b) & mask;
        }
    }
    values[0].cast_unsigned()
}

/// `x[i] = d t[q[i]]`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS], scale: &mut [f32; 2], _: &mut [f32; 2]) {
    let Block { d, qs } = from_bytes(block);
    each(q, &cast(nibbles(qs)), value);
    scale.fill(f16(*d));
}
