//! `Q6_K`: 256 numbers of 6 bits, offset 32, in groups of 16 with 8-bit scales (`block_q6_K` in
//! ggml-common.h).
//!
//! 64 bytes of nibbles and 32 bytes of upper bits hold 128 elements, in four groups of 32: the
//! first two in the low nibbles, the others in the high ones.

use super::bytes::{ONES, map_words2, scale_bytes, sub_bytes, to_bytes};
use super::chunk::CHUNK;
use super::section::{
    Section::{self, Field},
    plane,
};
use super::{fit, q2_k};
use bytemuck::{Pod, Zeroable, cast, cast_mut, from_bytes};
use std::array::from_fn;
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 210;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    ql: [[[u8; 32]; 2]; 2],
    qh: [[u8; 32]; 2],
    scales: [i8; 16],
    d: [u8; 2],
}

/// `x[i] = d s[i / 16] (q[i] - 32)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let Block { ql, qh, scales, d } = from_bytes(block);
    let halves: &mut [[[i8; 32]; 4]; 2] = cast_mut(q);
    for (([a, b, c, d], [first, second]), qh) in halves.iter_mut().zip(ql).zip(qh) {
        let number =
            |low: u64, top: u64| sub_bytes(low & (15 * ONES) | (top & (3 * ONES)) << 4, 32);
        map_words2(a, first, qh, number);
        map_words2(b, second, qh, |l, h| number(l, h >> 2));
        map_words2(c, first, qh, |l, h| number(l >> 4, h >> 4));
        map_words2(d, second, qh, |l, h| number(l >> 4, h >> 6));
    }
    *scale = scale_bytes(f16(*d), *scales);
}

/// Encodes with scales of smallest weighted error.
pub fn encode(x: &[f32; CHUNK], importance: Option<&[f32; CHUNK]>) -> [u8; BYTES] {
    let fit::Symmetric { d, scales, q } = fit::super_symmetric(x, importance, 32.0, 128.0);
    let halves: [[[u8; 32]; 4]; 2] = cast(q);
    to_bytes(Block {
        ql: halves.map(|[a, b, c, d]| {
            [
                from_fn(|i| a[i] & 15 | c[i] << 4),
                from_fn(|i| b[i] & 15 | d[i] << 4),
            ]
        }),
        qh: q2_k::pack(q.map(|q| q >> 4)),
        scales: scales.map(|s| s.wrapping_sub(128).cast_signed()),
        d: d.to_le_bytes(),
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![plane(0, 4), plane(4, 2), Field(192..208), Field(208..210)]
}
