//! `TQ2_0`: 256 ternary digits of 2 bits and an f16 scale `d` (`block_tq2_0` of ggml-common.h).
//!
//! 32 bytes hold 128 elements: four groups of 32, the first in their lowest bits.

use super::{CHUNK, ONES, f16, less, words};
use bytemuck::{Pod, Zeroable, cast_mut, from_bytes};

/// Bytes of a block.
pub const BYTES: usize = 66;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    qs: [[u8; 32]; 2],
    d: [u8; 2],
}

/// `x[i] = d (q[i] - 1)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let Block { qs, d } = from_bytes(block);
    let halves: &mut [[[i8; 32]; 4]; 2] = cast_mut(q);
    for (parts, qs) in halves.iter_mut().zip(qs) {
        for (part, q) in parts.iter_mut().enumerate() {
            words(q, qs, |w| less(w >> (2 * part) & (3 * ONES), 1));
        }
    }
    scale.fill(f16(*d));
}
