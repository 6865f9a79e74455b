//! `IQ2_XS`: groups of eight from a grid of 512 with signs, and 4-bit scales for every 16 elements
//! (`block_iq2_xs` in ggml-common.h).
//!
//! Each group of eight has 16 bits: nine index bits, then seven sign bits; the eighth makes their
//! parity even. A byte of `scales` holds two scales, the first in the low nibble.

use super::chunk::CHUNK;
use super::iq_grids::{EVEN_SIGNS, IQ2_XS, signed};
use super::section::Section::{self, Field, Grid};
use bytemuck::{Pod, Zeroable, cast_mut, cast_slice, from_bytes};
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 74;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qs: [[u8; 2]; 32],
    scales: [u8; 8],
}

/// `x[i] = d (s[i / 16] + 1/2) / 4 q[i]`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let Block { d, qs, scales } = from_bytes(block);
    let q: &mut [[i8; 8]; 32] = cast_mut(q);
    for (q, bits) in q.iter_mut().zip(qs) {
        let bits = usize::from(u16::from_le_bytes(*bits));
        *q = signed(IQ2_XS[bits & 511], EVEN_SIGNS[bits >> 9]);
    }
    let d = f16(*d);
    for ([first, second], s) in scale.as_chunks_mut().0.iter_mut().zip(scales) {
        *first = d * (0.5 + f32::from(s & 15)) * 0.25;
        *second = d * (0.5 + f32::from(s >> 4)) * 0.25;
    }
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![
        Grid(cast_slice(&IQ2_XS)),
        Field(2..66),
        Field(66..74),
        Field(0..2),
    ]
}
