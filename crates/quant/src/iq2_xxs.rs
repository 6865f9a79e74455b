//! `IQ2_XXS`: groups of eight from a grid of 256 with signs, and 4-bit scales for every 32 elements
//! (`block_iq2_xxs` in ggml-common.h).
//!
//! Each 32 elements have four indices, then 32 bits: seven sign bits per group of eight, with even
//! parity, and the scale on top.

use super::chunk::CHUNK;
use super::iq_grids::{EVEN_SIGNS, IQ2_XXS, signed};
use super::section::Section::{self, Field, Grid};
use bytemuck::{Pod, Zeroable, cast_mut, cast_slice, from_bytes};
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 66;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    groups: [[[u8; 4]; 2]; 8],
}

/// `x[i] = d (s[i / 32] + 1/2) / 4 q[i]`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let Block { d, groups } = from_bytes(block);
    let d = f16(*d);
    let q: &mut [[[i8; 8]; 4]; 8] = cast_mut(q);
    for ((q, scale), [index, bits]) in q.iter_mut().zip(scale.as_chunks_mut::<2>().0).zip(groups) {
        let bits = u32::from_le_bytes(*bits);
        for (k, (q, i)) in q.iter_mut().zip(index).enumerate() {
            let signs = EVEN_SIGNS[(bits >> (7 * k) & 127) as usize];
            *q = signed(IQ2_XXS[usize::from(*i)], signs);
        }
        scale.fill(d * (0.5 + (bits >> 28) as f32) * 0.25);
    }
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![Grid(cast_slice(&IQ2_XXS)), Field(2..66), Field(0..2)]
}
