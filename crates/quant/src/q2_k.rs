//! `Q2_K`: 256 numbers of 2 bits in groups of 16 with 4-bit scales and minima (`block_q2_K` in
//! ggml-common.h).
//!
//! 32 bytes hold 128 elements: four groups of 32, the first in the lowest bits. A byte of `scales`
//! holds the scale in its low nibble and the minimum in its high one.

use super::bytes::{ONES, map_words, scale_bytes, to_bytes};
use super::chunk::CHUNK;
use super::fit;
use super::section::{
    Section::{self, Field},
    plane,
};
use bytemuck::{Pod, Zeroable, cast, cast_mut, from_bytes, pod_read_unaligned};
use std::array::from_fn;
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 84;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    scales: [u8; 16],
    qs: [[u8; 32]; 2],
    d: [u8; 2],
    dmin: [u8; 2],
}

/// `x[i] = d s[i / 16] q[i] - dmin m[i / 16]`.
#[inline(always)]
pub fn unpack(
    block: &[u8; BYTES],
    q: &mut [i8; CHUNK],
    scale: &mut [f32; 16],
    min: &mut [f32; 16],
) {
    let Block {
        scales,
        qs,
        d,
        dmin,
    } = from_bytes(block);
    let halves: &mut [[[i8; 32]; 4]; 2] = cast_mut(q);
    for (parts, qs) in halves.iter_mut().zip(qs) {
        for (part, q) in parts.iter_mut().enumerate() {
            map_words(q, qs, |w| w >> (2 * part) & (3 * ONES));
        }
    }
    let (d, dmin) = (f16(*d), -f16(*dmin));
    let scales: [u64; 2] = pod_read_unaligned(scales);
    *scale = scale_bytes(d, cast(scales.map(|w| w & (15 * ONES))));
    *min = scale_bytes(dmin, cast(scales.map(|w| w >> 4 & (15 * ONES))));
}

/// Packs numbers of 2 bits.
pub(super) fn pack(q: [u8; CHUNK]) -> [[u8; 32]; 2] {
    let halves: [[[u8; 32]; 4]; 2] = cast(q);
    halves.map(|[a, b, c, d]| from_fn(|i| a[i] | b[i] << 2 | c[i] << 4 | d[i] << 6))
}

/// Encodes with scales and minima of smallest weighted error.
pub fn encode(x: &[f32; CHUNK], importance: Option<&[f32; CHUNK]>) -> [u8; BYTES] {
    let fit = fit::super_affine::<16, 16>(x, importance, 3.0, 15.0);
    to_bytes(Block {
        scales: from_fn(|g| fit.scales[g] | fit.mins[g] << 4),
        qs: pack(fit.q),
        d: fit.d.to_le_bytes(),
        dmin: fit.dmin.to_le_bytes(),
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![plane(0, 2), Field(0..16), Field(80..84)]
}
