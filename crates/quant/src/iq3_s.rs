//! `IQ3_S`: groups of four from a grid of 512 with signs, and 4-bit scales for every 32 elements
//! (`block_iq3_s` in ggml-common.h).
//!
//! Each group of four has a byte with the lower eight bits of its index; a byte of `qh` holds the
//! ninth bits of eight indices. A byte of `signs` belongs to eight elements; a byte of `scales`
//! holds two scales, the first in the low nibble.

use super::chunk::CHUNK;
use super::iq_grids::{IQ3_S, SIGNS, pair, signed};
use super::section::Section::{self, Field, Grid};
use bytemuck::{Pod, Zeroable, cast_mut, cast_slice, from_bytes};
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 110;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qs: [[[u8; 2]; 4]; 8],
    qh: [u8; 8],
    signs: [[u8; 4]; 8],
    scales: [u8; 4],
}

/// `x[i] = d (1 + 2 s[i / 32]) q[i]`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let block: &Block = from_bytes(block);
    let q: &mut [[[i8; 8]; 4]; 8] = cast_mut(q);
    let indices = block.qs.iter().zip(block.qh);
    for ((q, (qs, qh)), signs) in q.iter_mut().zip(indices).zip(&block.signs) {
        for (k, ((q, [a, b]), signs)) in q.iter_mut().zip(qs).zip(signs).enumerate() {
            let ninth = usize::from(qh >> (2 * k)) << 8;
            let a = usize::from(*a) | ninth & 256;
            let b = usize::from(*b) | ninth >> 1 & 256;
            *q = signed(pair(IQ3_S[a], IQ3_S[b]), SIGNS[usize::from(*signs)]);
        }
    }
    let d = f16(block.d);
    for ([a, b, c, e], s) in scale.as_chunks_mut().0.iter_mut().zip(block.scales) {
        *a = d * f32::from(1 + 2 * (s & 15));
        *b = *a;
        *c = d * f32::from(1 + 2 * (s >> 4));
        *e = *c;
    }
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![
        Grid(cast_slice(&IQ3_S)),
        Field(2..66),
        Field(74..106),
        Field(66..74),
        Field(106..110),
        Field(0..2),
    ]
}
