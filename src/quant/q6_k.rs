//! `Q6_K`: 256 numbers of 6 bits, offset 32, in groups of 16 with 8-bit scales (`block_q6_K` of
//! ggml-common.h).
//!
//! 64 bytes of nibbles and 32 bytes of upper bits hold 128 elements, which are four groups of 32:
//! the first two have the low nibbles, the others the high ones.

use super::{CHUNK, each2, f16};
use bytemuck::{Pod, Zeroable, cast_mut, from_bytes};

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
        each2(a, first, qh, |l, h| (l & 15 | h << 4 & 48).wrapping_sub(32));
        each2(b, second, qh, |l, h| {
            (l & 15 | h << 2 & 48).wrapping_sub(32)
        });
        each2(c, first, qh, |l, h| (l >> 4 | h & 48).wrapping_sub(32));
        each2(d, second, qh, |l, h| {
            (l >> 4 | h >> 2 & 48).wrapping_sub(32)
        });
    }
    let d = f16(*d);
    for (scale, s) in scale.iter_mut().zip(scales) {
        *scale = d * f32::from(*s);
    }
}
