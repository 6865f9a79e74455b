//! `IQ4_XS`: 256 nibbles that index the table of `IQ4_NL`, with 6-bit scales, offset 32, for every
//! 32 elements (`block_iq4_xs` in ggml-common.h).
//!
//! Byte `i` of a group of 32 holds its element `i` in the low nibble and element `i + 16` in the
//! high one. `low` holds the low nibbles of the scales, two per byte; `top` holds their top two
//! bits.

use super::bytes::{map_bytes, nibbles, scale_bytes};
use super::chunk::CHUNK;
use super::iq4_nl::iq4;
use super::iq4_nl::value;
use super::section::Section::{self, Computed, Field};
use bytemuck::{Pod, Zeroable, cast, from_bytes};
use std::array::from_fn;
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 136;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    top: [u8; 2],
    low: [u8; 4],
    qs: [[u8; 16]; 8],
}

impl Block {
    /// Scales of the groups, minus the offset.
    #[inline(always)]
    fn integers(&self) -> [i8; 8] {
        let (top, low) = (u16::from_le_bytes(self.top), u32::from_le_bytes(self.low));
        from_fn(|g| {
            let s = low >> (4 * g) & 15 | u32::from(top) >> (2 * g) << 4 & 48;
            s.to_le_bytes()[0].wrapping_sub(32).cast_signed()
        })
    }
}

/// Returns the scales of the groups of a block, minus the offset.
///
/// # Panics
///
/// If the bytes are not a block.
pub fn scales(block: &[u8]) -> [i8; 8] {
    from_bytes::<Block>(block).integers()
}

/// `x[i] = d (s[i / 32] - 32) t[q[i]]`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let block: &Block = from_bytes(block);
    for (q, qs) in q.as_chunks_mut::<32>().0.iter_mut().zip(&block.qs) {
        map_bytes(q, &cast(nibbles(qs)), value);
    }
    let scales = block.integers();
    *scale = scale_bytes(f16(block.d), from_fn(|g| scales[g / 2]));
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![
        iq4(),
        Computed(8, |b, out| {
            out.extend(scales(b).map(i8::cast_unsigned));
        }),
        Field(0..2),
    ]
}
