//! `TQ1_0`: 256 ternary digits and an f16 scale `d` (`block_tq1_0` of ggml-common.h).
//!
//! A byte is a fraction of 256 with five digits in base 3, the first the most significant. 32 bytes
//! hold 160 elements, the first digits of all before the second ones, 16 bytes hold 80 so, and 4
//! hold 16 in four digits.

use super::{CHUNK, each, f16};
use bytemuck::{Pod, Zeroable, from_bytes};

/// Bytes of a block.
pub const BYTES: usize = 54;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    qs: [u8; 32],
    rest: [u8; 16],
    qh: [u8; 4],
    d: [u8; 2],
}

/// `x[i] = d (q[i] - 1)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let block: &Block = from_bytes(block);
    let (first, q) = q.split_at_mut(5 * 32);
    let (second, third) = q.split_at_mut(5 * 16);
    digits(first.as_chunks_mut().0, block.qs);
    digits(second.as_chunks_mut().0, block.rest);
    digits(third.as_chunks_mut().0, block.qh);
    scale.fill(f16(block.d));
}

/// One digit of every byte after the other, less 1.
#[inline(always)]
fn digits<const N: usize>(q: &mut [[i8; N]], mut bytes: [u8; N]) {
    for q in q {
        // The digit is floor(3 b / 256), and three times b without it is the rest.
        each(q, &bytes, |b| {
            (u8::from(b >= 86) + u8::from(b >= 171)).wrapping_sub(1)
        });
        bytes = bytes.map(|b| b.wrapping_mul(3));
    }
}
