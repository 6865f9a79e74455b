//! `x[32 b + i] = d[b] q[32 b + i]`: activations to int8, before products with int8 blocks.
//!
//! No operation of the list but a step of its own: rows that several products read (q, k, v;
//! gate, up) are quantised once.

use crate::exec::cpu::memory::{ALIGN, Args};
use crate::exec::cpu::simd::{Kernel, Quantised, Simd};
use bytemuck::{Pod, Zeroable};

/// Rows of activations.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(in crate::exec::cpu) struct Shape {
    /// Rows at most.
    pub(in crate::exec::cpu) tokens: u32,
    /// Elements of a row: whole blocks.
    pub(in crate::exec::cpu) cols: u32,
}

/// Activations that share a scale.
pub(super) const BLOCK: usize = 32;

impl Shape {
    /// Bytes of a quantised row: the numbers, the scales, the sums.
    pub(in crate::exec::cpu) fn row_bytes(self) -> usize {
        let cols = self.cols as usize;
        (cols + cols / BLOCK * 8).next_multiple_of(ALIGN)
    }
}

/// Rows of quantised activations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    bytes: &'a [u8],
    shape: Shape,
}

impl<'a> Rows<'a> {
    pub(super) fn new(bytes: &'a [u8], shape: Shape) -> Self {
        Self { bytes, shape }
    }

    #[inline(always)]
    pub(super) fn row(self, t: usize) -> Quantised<'a> {
        let bytes = &self.bytes[t * self.shape.row_bytes()..];
        let cols = self.shape.cols as usize;
        let (q, rest) = bytes.split_at(cols);
        let numbers = cols / BLOCK * 4;
        Quantised {
            q: q.as_chunks().0,
            d: bytemuck::cast_slice(&rest[..numbers]),
            sum: bytemuck::cast_slice(&rest[numbers..2 * numbers]),
        }
    }
}

/// Quantises the rows of its units: operand 0 into operand 1.
pub(in crate::exec::cpu) struct Quantise;

impl Kernel for Quantise {
    #[inline(always)]
    fn run<S: Simd>(_: S, mut args: Args<'_>) {
        let shape: Shape = args.params();
        let cols = shape.cols as usize;
        let x = args.f32s(0);
        let mut out = args.open::<u8>(1);
        for t in args.units() {
            let row = out.unit(t, shape.row_bytes());
            let (q, rest) = row.split_at_mut(cols);
            let (d, sum) = rest[..cols / BLOCK * 8].split_at_mut(cols / BLOCK * 4);
            let d: &mut [f32] = bytemuck::cast_slice_mut(d);
            let sum: &mut [i32] = bytemuck::cast_slice_mut(sum);
            let x = x[t * cols..][..cols].as_chunks().0;
            for (b, q) in q.as_chunks_mut().0.iter_mut().enumerate() {
                (d[b], sum[b]) = block(&x[b], q);
            }
        }
    }
}

/// `d = max |x| / 127`, `q = round(x / d)`, halves to even; also the sum of `q`.
///
/// Plain Rust on purpose: every level gets the same integers.
#[inline(always)]
fn block(x: &[f32; BLOCK], q: &mut [u8; BLOCK]) -> (f32, i32) {
    /// Adding it leaves the nearest whole number in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Magnitudes order as their bits do.
    let largest = x.iter().fold(0, |m, x| m.max(x.to_bits() & 0x7fff_ffff));
    let largest = f32::from_bits(largest);
    let inverse = 127.0 / largest;
    // Zeros, and blocks so small that their inverse is none.
    let inverse = if inverse < f32::INFINITY {
        inverse
    } else {
        0.0
    };
    let mut sum = 0;
    for (q, x) in q.iter_mut().zip(x) {
        let [low, ..] = (x * inverse + ROUND).to_bits().to_le_bytes();
        *q = low;
        sum += i32::from(low.cast_signed());
    }
    (largest / 127.0, sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_worked_by_hand() {
        let x: [f32; BLOCK] = std::array::from_fn(|i| i as f32 * 8.0 - 127.0);
        let mut q = [0; BLOCK];
        let (d, sum) = block(&x, &mut q);
        assert_eq!(d, 1.0);
        assert_eq!(q[0].cast_signed(), -127);
        assert_eq!(q[31].cast_signed(), 121);
        assert_eq!(sum, -96);
    }

    #[test]
    fn nothing_and_next_to_nothing_are_zeros() {
        for x in [0.0, 1e-42] {
            let mut q = [7; BLOCK];
            let (_, sum) = block(&[x; BLOCK], &mut q);
            assert_eq!((q, sum), ([0; BLOCK], 0));
        }
    }
}
