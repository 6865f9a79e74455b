//! `Q5_1`: an f16 scale `d`, an f16 minimum `m`, then 32 numbers of 5 bits; `x = d q + m`
//! (`block_q5_1` of ggml-common.h).
//!
//! Nibbles and fifth bits lie as in `Q5_0`.

use super::q5_0::fifth_bits;
use super::{f16, nibbles};
use bytemuck::{Pod, Zeroable, cast, from_bytes};
use std::array::from_fn;

/// Elements of a block.
pub const ELEMENTS: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 24;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    m: [u8; 2],
    qh: [u8; 4],
    qs: [u8; 16],
}

/// `x[i] = d q[i] + m`.
#[inline(always)]
pub fn unpack(
    block: &[u8; BYTES],
    q: &mut [i8; ELEMENTS],
    scale: &mut [f32; 2],
    min: &mut [f32; 2],
) {
    let Block { d, m, qh, qs } = from_bytes(block);
    let (nibbles, fifth) = (nibbles(qs), fifth_bits(*qh));
    *q = cast(from_fn::<_, 4, _>(|i| nibbles[i] | fifth[i]));
    scale.fill(f16(*d));
    min.fill(f16(*m));
}
