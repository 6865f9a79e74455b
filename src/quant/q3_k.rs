//! `Q3_K`: 256 numbers of 3 bits, offset 4, in groups of 16 with 6-bit scales, offset 32
//! (`block_q3_K` of ggml-common.h).
//!
//! The lower two bits lie as in `Q2_K`; bit `g` of byte `i` of `hmask` is the third bit of element
//! `i` of the `g`th 32. The scales' lower nibbles fill eight bytes, those of the last eight the
//! high halves; bits `2 k` and `2 k + 1` of four more bytes top scales `4 k` to `4 k + 3`.

use super::{CHUNK, each2, f16};
use bytemuck::{Pod, Zeroable, cast_mut, from_bytes};

/// Bytes of a block.
pub const BYTES: usize = 110;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    hmask: [u8; 32],
    qs: [[u8; 32]; 2],
    scales: [[u8; 4]; 3],
    d: [u8; 2],
}

/// `x[i] = d (s[i / 16] - 32) (q[i] - 4)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let Block {
        hmask,
        qs,
        scales,
        d,
    } = from_bytes(block);
    let halves: &mut [[[i8; 32]; 4]; 2] = cast_mut(q);
    let mut third = *hmask;
    for ([a, b, c, d], qs) in halves.iter_mut().zip(qs) {
        each2(a, qs, &third, |b, t| (b & 3 | t << 2 & 4).wrapping_sub(4));
        each2(b, qs, &third, |b, t| {
            (b >> 2 & 3 | t << 1 & 4).wrapping_sub(4)
        });
        each2(c, qs, &third, |b, t| (b >> 4 & 3 | t & 4).wrapping_sub(4));
        each2(d, qs, &third, |b, t| (b >> 6 | t >> 1 & 4).wrapping_sub(4));
        third = third.map(|t| t >> 4);
    }
    let [first, second, top] = scales.map(u32::from_le_bytes);
    let low = [first, second, first >> 4, second >> 4].map(|w| w & 0x0f0f_0f0f);
    let top = [top << 4, top << 2, top, top >> 2].map(|w| w & 0x3030_3030);
    let d = f16(*d);
    for ((scale, low), top) in scale.as_chunks_mut::<4>().0.iter_mut().zip(low).zip(top) {
        for (scale, s) in scale.iter_mut().zip((low | top).to_le_bytes()) {
            *scale = d * f32::from(s.wrapping_sub(32).cast_signed());
        }
    }
}
