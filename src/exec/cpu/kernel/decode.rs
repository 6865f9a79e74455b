//! Weights as vectors of f32, in any storage type.

use crate::exec::cpu::simd::{Nibble, Simd};
use crate::quant::{q4_0, q4_1, q8_0};

/// Elements that are decoded together: a block, or as many floats.
pub(super) const BLOCK: usize = 32;

/// A storage type of weights.
pub(super) trait Weight {
    /// Bytes of [`BLOCK`] elements.
    const BYTES: usize;
    /// Whether rows may end within a block.
    const PARTS: bool;
    /// What a block's elements share.
    type Head: Copy + Default;

    /// Reads the head of a block.
    fn head<S: Simd>(s: S, block: &[u8]) -> Self::Head;
    /// Elements `i..i + LANES` of a block; `i` is a multiple of `LANES`.
    fn load<S: Simd>(s: S, head: Self::Head, block: &[u8], i: usize) -> S::V;

    /// Bytes of a row.
    fn row_bytes(cols: usize) -> usize {
        cols * Self::BYTES / BLOCK
    }
}

macro_rules! float {
    ($name:ident, $bytes:literal, $load:ident) => {
        pub(super) struct $name;

        impl Weight for $name {
            const BYTES: usize = $bytes * BLOCK;
            const PARTS: bool = true;
            type Head = ();

            #[inline(always)]
            fn head<S: Simd>(_: S, _: &[u8]) {}
            #[inline(always)]
            fn load<S: Simd>(s: S, (): (), block: &[u8], i: usize) -> S::V {
                s.$load(&block[i * $bytes..])
            }
        }
    };
}
float!(F32, 4, load_f32);
float!(F16, 2, load_f16);
float!(Bf16, 2, load_bf16);

pub(super) struct Q8;

impl Weight for Q8 {
    const BYTES: usize = q8_0::BYTES;
    const PARTS: bool = false;
    type Head = f32;

    #[inline(always)]
    fn head<S: Simd>(s: S, block: &[u8]) -> f32 {
        s.f16([block[0], block[1]])
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, d: f32, block: &[u8], i: usize) -> S::V {
        let q = s.load_i8(&block[2 + i..]);
        s.fma(q, s.splat(d), s.splat(0.0))
    }
}

/// Elements `i..i + LANES` of 16 bytes whose low nibbles come before their high ones.
#[inline(always)]
fn nibbles<S: Simd>(s: S, bytes: &[u8], i: usize) -> S::V {
    let half = if i < 16 { Nibble::Low } else { Nibble::High };
    s.load_u4(&bytes[i % 16..], half)
}

pub(super) struct Q4;

impl Weight for Q4 {
    const BYTES: usize = q4_0::BYTES;
    const PARTS: bool = false;
    type Head = f32;

    #[inline(always)]
    fn head<S: Simd>(s: S, block: &[u8]) -> f32 {
        s.f16([block[0], block[1]])
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, d: f32, block: &[u8], i: usize) -> S::V {
        // d q - 8 d is exact: q has 4 bits and d has 11.
        s.fma(nibbles(s, &block[2..], i), s.splat(d), s.splat(-8.0 * d))
    }
}

pub(super) struct Q4WithMin;

impl Weight for Q4WithMin {
    const BYTES: usize = q4_1::BYTES;
    const PARTS: bool = false;
    type Head = [f32; 2];

    #[inline(always)]
    fn head<S: Simd>(s: S, block: &[u8]) -> [f32; 2] {
        [s.f16([block[0], block[1]]), s.f16([block[2], block[3]])]
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, [d, m]: [f32; 2], block: &[u8], i: usize) -> S::V {
        s.fma(nibbles(s, &block[4..], i), s.splat(d), s.splat(m))
    }
}

/// Picks the type that stands for a storage type: `decoder!(dtype, W => expression of W)`.
macro_rules! decoder {
    ($dtype:expr, $w:ident => $body:expr) => {
        match $dtype {
            Some($crate::dtype::DType::F32) => {
                type $w = $crate::exec::cpu::kernel::decode::F32;
                $body
            }
            Some($crate::dtype::DType::F16) => {
                type $w = $crate::exec::cpu::kernel::decode::F16;
                $body
            }
            Some($crate::dtype::DType::Bf16) => {
                type $w = $crate::exec::cpu::kernel::decode::Bf16;
                $body
            }
            Some($crate::dtype::DType::Q8_0) => {
                type $w = $crate::exec::cpu::kernel::decode::Q8;
                $body
            }
            Some($crate::dtype::DType::Q4_0) => {
                type $w = $crate::exec::cpu::kernel::decode::Q4;
                $body
            }
            Some($crate::dtype::DType::Q4_1) => {
                type $w = $crate::exec::cpu::kernel::decode::Q4WithMin;
                $body
            }
            other => $crate::error::bail!(Unsupported, "no kernel for weights of {other:?}"),
        }
    };
}
pub(super) use decoder;

/// Decodes a row.
#[inline(always)]
pub(super) fn row<S: Simd, W: Weight>(s: S, bytes: &[u8], y: &mut [f32]) {
    let cols = y.len();
    for (b, y) in y.chunks_mut(BLOCK).enumerate() {
        let block = &bytes[b * W::BYTES..bytes.len().min((b + 1) * W::BYTES)];
        if y.len() == BLOCK {
            whole::<S, W>(s, block, y);
        } else {
            debug_assert!(W::PARTS, "{cols} columns are no whole blocks");
            let mut padded = [0; 4 * BLOCK];
            padded[..block.len()].copy_from_slice(block);
            let mut out = [0.0; BLOCK];
            whole::<S, W>(s, &padded[..W::BYTES], &mut out);
            y.copy_from_slice(&out[..y.len()]);
        }
    }
}

#[inline(always)]
fn whole<S: Simd, W: Weight>(s: S, block: &[u8], y: &mut [f32]) {
    let head = W::head(s, block);
    for i in (0..BLOCK).step_by(S::LANES) {
        s.store(&mut y[i..], W::load(s, head, block, i));
    }
}
