//! `Q5_K`: 256 numbers of 5 bits in groups of 32 with 6-bit scales and minima (`block_q5_K` of
//! ggml-common.h).
//!
//! Nibbles as in `Q4_K`; bit `g` of byte `i` of `qh` is the fifth bit of element `i` of group `g`.

use super::q4_k::Scales;
use super::{CHUNK, ONES, words2};
use bytemuck::{Pod, Zeroable, cast_mut, from_bytes};

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
        words2(low, qs, qh, |w, h| w & (15 * ONES) | fifth(h, 2 * pair));
        words2(high, qs, qh, |w, h| {
            w >> 4 & (15 * ONES) | fifth(h, 2 * pair + 1)
        });
    }
}
