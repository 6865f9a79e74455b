//! `MXFP4`: a power-of-two scale, then 32 floats of 4 bits (`block_mxfp4` in ggml-common.h; Open
//! Compute's Microscaling Formats 1.0).
//!
//! Byte `i` holds element `i` in its low nibble and element `i + 16` in its high one.

use super::bytes::{map_bytes, nibbles, to_bytes};
use super::section::Section::{self, Field};
use super::section::{codes_of, encoded, to_codes};
use bytemuck::{Pod, Zeroable, cast, from_bytes};
use std::array::from_fn;

/// Elements of a block.
pub const ELEMENTS: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 17;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    e: u8,
    qs: [u8; 16],
}

/// Twice the value of each nibble.
pub const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Twice the value of a nibble: 0, 1, 2, 3, 4, 6, 8, 12 with a sign bit.
#[inline(always)]
pub(super) fn doubled(nibble: u8) -> u8 {
    let m = nibble & 7;
    // Steps of one, from 4 on of two, the last of four.
    let value = m + m.saturating_sub(4) + (m.saturating_sub(6) << 1);
    let sign = (nibble >> 3 & 1).wrapping_neg();
    (value ^ sign).wrapping_sub(sign)
}

/// `x[i] = 2^(e - 128) q[i]`, where `q` is twice the float.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; ELEMENTS], scale: &mut [f32; 2], _: &mut [f32; 2]) {
    let Block { e, qs } = from_bytes(block);
    map_bytes(q, &cast(nibbles(qs)), doubled);
    scale.fill(self::scale(*e));
}

/// `2^(e - 128)`: half the scale, because values are doubled.
#[inline(always)]
pub fn scale(e: u8) -> f32 {
    // The lowest two are subnormal in f32.
    f32::from_bits(if e < 2 {
        0x0020_0000 << e
    } else {
        u32::from(e - 1) << 23
    })
}

/// Packs a scale and elements, the first of each pair in the low nibble.
pub(super) fn pack(e: u8, pairs: &[u8; ELEMENTS / 2]) -> [u8; BYTES] {
    let element = |i: usize| pairs[i / 2] >> (i % 2 * 4) & 15;
    to_bytes(Block {
        e,
        qs: from_fn(|i| element(i) | element(i + ELEMENTS / 2) << 4),
    })
}

/// Plane of 4-bit floats.
pub(crate) fn fp4() -> Section {
    static CODES: [u8; 256] = codes_of(&DOUBLED);
    encoded(4, |q| to_codes(q, &CODES))
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![fp4(), Field(0..1)]
}
