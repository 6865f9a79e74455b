//! `IQ3_XXS`: groups of four from a grid of 256 with signs, and 4-bit scales for every 32 elements
//! (`block_iq3_xxs` in ggml-common.h).
//!
//! A byte of `qs` is the index of four elements. Each 32 elements have 32 bits of `bits`: seven
//! sign bits per eight elements, with even parity, and the scale on top.

use super::chunk::CHUNK;
use super::iq_grids::{EVEN_SIGNS, IQ3_XXS, pair, signed};
use super::section::Section::{self, Field, Grid};
use bytemuck::{Pod, Zeroable, cast_mut, cast_slice, from_bytes};
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 98;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qs: [[[u8; 2]; 4]; 8],
    bits: [[u8; 4]; 8],
}

/// `x[i] = d (s[i / 32] + 1/2) / 2 q[i]`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let Block { d, qs, bits } = from_bytes(block);
    let d = f16(*d);
    let q: &mut [[[i8; 8]; 4]; 8] = cast_mut(q);
    let groups = qs.iter().zip(bits);
    for ((q, scale), (qs, bits)) in q.iter_mut().zip(scale.as_chunks_mut::<2>().0).zip(groups) {
        let bits = u32::from_le_bytes(*bits);
        for (k, (q, [a, b])) in q.iter_mut().zip(qs).enumerate() {
            let signs = EVEN_SIGNS[(bits >> (7 * k) & 127) as usize];
            let grid = pair(IQ3_XXS[usize::from(*a)], IQ3_XXS[usize::from(*b)]);
            *q = signed(grid, signs);
        }
        scale.fill(d * (0.5 + (bits >> 28) as f32) * 0.5);
    }
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![
        Grid(cast_slice(&IQ3_XXS)),
        Field(2..66),
        Field(66..98),
        Field(0..2),
    ]
}
