//! `IQ1_M`: groups of eight ternary values from a grid of 2048, with offsets of plus or minus 1/8,
//! and 3-bit scales for every 16 elements (`block_iq1_m` in ggml-common.h).
//!
//! `qs` holds the lower eight bits of the indices; a nibble of `qh` holds the upper three bits and
//! the sign of the offset of each. 16 bits of `scales` hold four scales and, on top, a nibble of
//! the f16 `d`, lowest first.

use super::chunk::CHUNK;
use super::iq_grids::{IQ1, ternary};
use super::section::Section::{self, Field, Grid};
use bytemuck::{Pod, Zeroable, cast_mut, cast_slice, from_bytes};
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 56;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    qs: [[u8; 2]; 16],
    qh: [u8; 16],
    scales: [[u8; 2]; 4],
}

/// `x[i] = d (2 s[i / 16] + 1) / 8 q[i]`, where `q` is eight times the ternary value, plus or minus
/// 1.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let Block { qs, qh, scales } = from_bytes(block);
    let q: &mut [[[i8; 8]; 2]; 16] = cast_mut(q);
    for (([a, b], [i, j]), qh) in q.iter_mut().zip(qs).zip(qh) {
        let qh = u16::from(*qh);
        *a = ternary(u16::from(*i) | qh << 8 & 0x700, qh >> 3 & 1);
        *b = ternary(u16::from(*j) | qh << 4 & 0x700, qh >> 7);
    }
    let scales = scales.map(u16::from_le_bytes);
    let d = scales.iter().rev().fold(0, |d, s| d << 4 | s >> 12);
    let d = f16(d.to_le_bytes());
    for (scale, s) in scale.as_chunks_mut::<4>().0.iter_mut().zip(scales) {
        for (k, scale) in scale.iter_mut().enumerate() {
            *scale = d * f32::from(2 * (s >> (3 * k) & 7) + 1) * 0.125;
        }
    }
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![
        Grid(cast_slice(&IQ1)),
        Field(0..32),
        Field(32..48),
        Field(48..56),
    ]
}
