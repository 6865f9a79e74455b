//! `Q3_K`: 256 numbers of 3 bits, offset 4, in groups of 16 with 6-bit scales, offset 32
//! (`block_q3_K` in ggml-common.h).
//!
//! The lower two bits are stored as in `Q2_K`; bit `g` of byte `i` of `hmask` is the third bit of
//! element `i` of the `g`th 32. Eight bytes hold the lower nibbles of the scales, those of the last
//! eight in the high nibbles; bits `2 k` and `2 k + 1` of four more bytes are the top bits of
//! scales `4 k` to `4 k + 3`.

use super::bytes::{ONES, map_words2, scale_bytes, sub_bytes, to_bytes};
use super::chunk::CHUNK;
use super::section::{
    Section::{self, Computed, Field},
    plane,
};
use super::{fit, q2_k};
use bytemuck::{Pod, Zeroable, cast_mut, from_bytes};
use std::array::from_fn;
use tabla_core::scales::f16;

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

impl Block {
    /// Scales of the groups, minus the offset.
    #[inline(always)]
    fn integers(&self) -> [i8; 16] {
        let [first, second, top] = self.scales.map(u32::from_le_bytes);
        let low = [first, second, first >> 4, second >> 4].map(|w| w & 0x0f0f_0f0f);
        let top = [top << 4, top << 2, top, top >> 2].map(|w| w & 0x3030_3030);
        let scales: [[u8; 4]; 4] = from_fn(|i| (low[i] | top[i]).to_le_bytes());
        let scales = scales.as_flattened();
        from_fn(|i| scales[i].wrapping_sub(32).cast_signed())
    }
}

/// Returns the scales of the groups of a block, minus the offset.
///
/// # Panics
///
/// If the bytes are not a block.
pub fn scales(block: &[u8]) -> [i8; 16] {
    from_bytes::<Block>(block).integers()
}

/// `x[i] = d (s[i / 16] - 32) (q[i] - 4)`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let block: &Block = from_bytes(block);
    let Block { hmask, qs, d, .. } = block;
    let halves: &mut [[[i8; 32]; 4]; 2] = cast_mut(q);
    for (half, (parts, qs)) in halves.iter_mut().zip(qs).enumerate() {
        for (part, q) in parts.iter_mut().enumerate() {
            let (low, third) = (2 * part, 4 * half + part);
            map_words2(q, qs, hmask, |w, h| {
                sub_bytes(w >> low & (3 * ONES) | (h >> third & ONES) << 2, 4)
            });
        }
    }
    *scale = scale_bytes(f16(*d), block.integers());
}

/// Encodes with scales of smallest weighted error.
pub fn encode(x: &[f32; CHUNK], importance: Option<&[f32; CHUNK]>) -> [u8; BYTES] {
    let fit::Symmetric { d, scales: s, q } = fit::super_symmetric(x, importance, 4.0, 32.0);
    let low = |i: usize| s[i] & 15 | s[i + 8] << 4;
    let top = |i: usize| (0..4).fold(0, |bits, k| bits | s[4 * k + i] >> 4 << (2 * k));
    to_bytes(Block {
        hmask: from_fn(|i| (0..8).fold(0, |bits, g| bits | q[32 * g + i] >> 2 << g)),
        qs: q2_k::pack(q.map(|q| q & 3)),
        scales: [from_fn(low), from_fn(|i| low(4 + i)), from_fn(top)],
        d: d.to_le_bytes(),
    })
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![
        plane(0, 2),
        plane(2, 1),
        Computed(16, |b, out| {
            out.extend(scales(b).map(i8::cast_unsigned));
        }),
        Field(108..110),
    ]
}
