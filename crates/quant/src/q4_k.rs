//! `Q4_K`: 256 nibbles in groups of 32 with 6-bit scales and minima (`block_q4_K` in
//! ggml-common.h).
//!
//! 32 bytes hold 64 elements, the first 32 in the low nibbles.

use super::bytes::{ONES, map_words, scale_bytes, to_bytes};
use super::chunk::CHUNK;
use super::fit;
use super::section::{
    Section::{self, Computed, Field},
    plane,
};
use bytemuck::{Pod, Zeroable, cast, cast_mut, from_bytes};
use std::array::from_fn;
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 144;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    scales: Scales,
    qs: [[u8; 32]; 4],
}

/// Scales and minima of eight groups: `d` and `dmin` times 6 bits each.
///
/// Bytes 0 to 3 hold the first four scales, 4 to 7 the first four minima, 8 to 11 the low nibbles
/// of the others; the top two bits of bytes 0 to 7 are the top bits of the others.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Scales {
    d: [u8; 2],
    dmin: [u8; 2],
    packed: [[u8; 4]; 3],
}

impl Scales {
    /// Packs scales and minima.
    pub(super) fn pack(fit: &fit::Affine<8>) -> Self {
        let (s, m) = (fit.scales, fit.mins);
        Self {
            d: fit.d.to_le_bytes(),
            dmin: fit.dmin.to_le_bytes(),
            packed: [
                from_fn(|i| s[i] | s[i + 4] >> 4 << 6),
                from_fn(|i| m[i] | m[i + 4] >> 4 << 6),
                from_fn(|i| s[i + 4] & 15 | m[i + 4] << 4),
            ],
        }
    }

    /// 6-bit scales and minima of the groups.
    #[inline(always)]
    fn integers(&self) -> [[u8; 8]; 2] {
        let [low, mid, high] = self.packed.map(u32::from_le_bytes);
        let word = |first: u32, nibbles: u32| {
            let rest = nibbles & 0x0f0f_0f0f | first >> 2 & 0x3030_3030;
            cast([first & 0x3f3f_3f3f, rest].map(u32::to_le_bytes))
        };
        [word(low, high), word(mid, high >> 4)]
    }

    /// Scales and negated minima, as they are applied.
    #[inline(always)]
    pub(super) fn unpack(&self, scale: &mut [f32; 16], min: &mut [f32; 16]) {
        let twice = |bytes: [u8; 8]| from_fn(|g| bytes[g / 2].cast_signed());
        let [scales, mins] = self.integers();
        *scale = scale_bytes(f16(self.d), twice(scales));
        *min = scale_bytes(-f16(self.dmin), twice(mins));
    }
}

/// Returns the 6-bit scales and minima of the groups of a `Q4_K` or `Q5_K` block, which start with
/// the same fields.
///
/// # Panics
///
/// If there are too few bytes.
pub fn scales(block: &[u8]) -> [[u8; 8]; 2] {
    from_bytes::<Scales>(&block[..size_of::<Scales>()]).integers()
}

/// `x[i] = d s[i / 32] q[i] - dmin m[i / 32]`.
#[inline(always)]
pub fn unpack(
    block: &[u8; BYTES],
    q: &mut [i8; CHUNK],
    scale: &mut [f32; 16],
    min: &mut [f32; 16],
) {
    let Block { scales, qs } = from_bytes(block);
    scales.unpack(scale, min);
    let q: &mut [[[i8; 32]; 2]; 4] = cast_mut(q);
    for ([low, high], qs) in q.iter_mut().zip(qs) {
        map_words(low, qs, |w| w & (15 * ONES));
        map_words(high, qs, |w| w >> 4 & (15 * ONES));
    }
}

/// Packs nibbles.
pub(super) fn pack(q: [u8; CHUNK]) -> [[u8; 32]; 4] {
    let quarters: [[[u8; 32]; 2]; 4] = cast(q);
    quarters.map(|[low, high]| from_fn(|i| low[i] | high[i] << 4))
}

/// Encodes with scales and minima of smallest weighted error.
pub fn encode(x: &[f32; CHUNK], importance: Option<&[f32; CHUNK]>) -> [u8; BYTES] {
    let fit = fit::super_affine::<8, 32>(x, importance, 15.0, 63.0);
    to_bytes(Block {
        scales: Scales::pack(&fit),
        qs: pack(fit.q),
    })
}

/// Appends a scale byte and a minimum byte for each group of `Q4_K` and `Q5_K`.
pub(crate) fn scales_and_mins(block: &[u8], out: &mut Vec<u8>) {
    let [scales, mins] = scales(block);
    out.extend(scales.iter().zip(mins).flat_map(|(s, m)| [*s, m]));
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![plane(0, 4), Computed(16, scales_and_mins), Field(0..4)]
}
