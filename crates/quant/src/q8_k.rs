//! `Q8_K`: an f32 scale `d`, 256 signed bytes `q`, and the sums of every 16 of them, which decoding
//! does not need (`block_q8_K` in ggml-common.h).

use super::chunk::CHUNK;
use super::section::{
    Section::{self, Field},
    plane,
};
use bytemuck::{Pod, Zeroable, from_bytes};

/// Bytes of a block.
pub const BYTES: usize = 292;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Block {
    d: [u8; 4],
    qs: [[i8; 32]; 8],
    sums: [u8; 32],
}

/// `x[i] = d q[i]`.
#[inline(always)]
pub fn unpack(block: &[u8; BYTES], q: &mut [i8; CHUNK], scale: &mut [f32; 16], _: &mut [f32; 16]) {
    let block: &Block = from_bytes(block);
    q.copy_from_slice(block.qs.as_flattened());
    scale.fill(f32::from_le_bytes(block.d));
}

/// Sections of the layout on devices.
pub(crate) fn sections() -> Vec<Section> {
    vec![plane(0, 8), Field(0..4)]
}
