//! `IQ2_S`: groups of eight from a grid of 1024 with signs, and 4-bit scales for every 16 elements
//! (`block_iq2_s` in ggml-common.h).
//!
//! Each group of eight has a byte with the lower eight bits of its index and a byte of signs; a
//! byte of `qh` holds the upper two bits of four indices. A byte of `scales` holds two scales, the
//! first in the low nibble.

use super::chunk::CHUNK;
use super::iq_grids::{IQ2_S, SIGNS, signed};
use super::section::Section::{self, Field, Grid};
use bytemuck::{Pod, Zeroable, cast_mut, cast_slice, from_bytes};
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 82;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qs: [[u8; 4]; 8],
    signs: [[u8; 4]; 8],
    qh: [u8; 8],
    scales: [u8; 8],
}

/// `x[i] = d (s[i / 16] + 1/2) / 4 q[i]`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let block: &Block = from_bytes(block);
    let q: &mut [[[i8; 8]; 4]; 8] = cast_mut(q);
    let indices = block.qs.iter().zip(block.qh);
    for ((q, (qs, qh)), signs) in q.iter_mut().zip(indices).zip(&block.signs) {
        for (k, ((q, i), signs)) in q.iter_mut().zip(qs).zip(signs).enumerate() {
            let i = usize::from(*i) | usize::from(qh >> (2 * k) & 3) << 8;
            *q = signed(IQ2_S[i], SIGNS[usize::from(*signs)]);
        }
    }
    let d = f16(block.d);
    for ([first, second], s) in scale.as_chunks_mut().0.iter_mut().zip(block.scales) {
        *first = d * (0.5 + f32::from(s & 15)) * 0.25;
        *second = d * (0.5 + f32::from(s >> 4)) * 0.25;
    }
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![
        Grid(cast_slice(&IQ2_S)),
        Field(2..34),
        Field(34..66),
        Field(66..74),
        Field(74..82),
        Field(0..2),
    ]
}
