//! `IQ1_S`: groups of eight ternary values from a grid of 2048, with 3-bit scales and an offset of
//! plus or minus 1/8 for every 32 elements (`block_iq1_s` in ggml-common.h).
//!
//! `qs` holds the lower eight bits of the indices. Each 32 elements have 16 bits of `qh`: the upper
//! three bits of their four indices, the scale, and the sign of the offset.

use super::chunk::CHUNK;
use super::iq_grids::{IQ1, ternary};
use super::section::Section::{self, Field, Grid};
use bytemuck::{Pod, Zeroable, cast_mut, cast_slice, from_bytes};
use tabla_core::scales::f16;

/// Bytes of a block.
pub const BYTES: usize = 50;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 2],
    qs: [[u8; 4]; 8],
    qh: [[u8; 2]; 8],
}

/// `x[i] = d (2 s[i / 32] + 1) / 8 q[i]`, where `q` is eight times the ternary value, plus or minus
/// 1.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let Block { d, qs, qh } = from_bytes(block);
    let d = f16(*d);
    let q: &mut [[[i8; 8]; 4]; 8] = cast_mut(q);
    let groups = qs.iter().zip(qh);
    for ((q, scale), (qs, qh)) in q.iter_mut().zip(scale.as_chunks_mut::<2>().0).zip(groups) {
        let bits = u16::from_le_bytes(*qh);
        for (k, (q, i)) in q.iter_mut().zip(qs).enumerate() {
            *q = ternary(u16::from(*i) | bits >> (3 * k) << 8 & 0x700, bits >> 15);
        }
        scale.fill(d * f32::from(2 * (bits >> 12 & 7) + 1) * 0.125);
    }
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![
        Grid(cast_slice(&IQ1)),
        Field(2..34),
        Field(34..50),
        Field(0..2),
    ]
}
