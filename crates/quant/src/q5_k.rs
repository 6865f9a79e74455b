//! `Q5_K`: 256 numbers of 5 bits in groups of 32 with 6-bit scales and minima (`block_q5_K` in
//! ggml-common.h).
//!
//! Nibbles as in `Q4_K`; bit `g` of byte `i` of `qh` is the fifth bit of element `i` of group `g`.

use super::bytes::{ONES, map_words2, to_bytes};
use super::chunk::CHUNK;
use super::fit;
use super::q4_k::scales_and_mins;
use super::q4_k::{self, Scales};
use super::section::{
    Section::{self, Computed, Field},
    plane,
};
use bytemuck::{Pod, Zeroable, cast_mut, from_bytes};
use std::array::from_fn;

/// Bytes of a block.
pub const BYTES: usize = 176;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    scales: Scales,
    qh: [u8; 32],
    qs: [[u8; 32]; 4],
}

/// `x[i] = d s[i / 32] q[i] - dmin m[i / 32]`.
#[inline(always)]
pub fn unpack(
    block: &[u8; BYTES],
    q: &mut [i8; CHUNK],
    scale: &mut [f32; 16],
    min: &mut [f32; 16],
) {
    let Block { scales, qh, qs } = from_bytes(block);
    scales.unpack(scale, min);
    let q: &mut [[[i8; 32]; 2]; 4] = cast_mut(q);
    for (pair, ([low, high], qs)) in q.iter_mut().zip(qs).enumerate() {
        let fifth = |h: u64, group| (h >> group & ONES) << 4;
        map_words2(low, qs, qh, |w, h| w & (15 * ONES) | fifth(h, 2 * pair));
        map_words2(high, qs, qh, |w, h| {
            w >> 4 & (15 * ONES) | fifth(h, 2 * pair + 1)
        });
    }
}

/// Encodes with scales and minima of smallest weighted error.
pub fn encode(x: &[f32; CHUNK], importance: Option<&[f32; CHUNK]>) -> [u8; BYTES] {
    let fit = fit::super_affine::<8, 32>(x, importance, 31.0, 63.0);
    let fifth = |i: usize| (0..8).fold(0, |bits, g| bits | fit.q[32 * g + i] >> 4 << g);
    to_bytes(Block {
        scales: Scales::pack(&fit),
        qh: from_fn(fifth),
        qs: q4_k::pack(fit.q.map(|q| q & 15)),
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![
        plane(0, 4),
        plane(4, 1),
        Computed(16, scales_and_mins),
        Field(0..4),
    ]
}
