//! `x[32 b + i] = d[b] q[32 b + i]`: activations to int8, before products with codes of weights.
//!
//! No operation of the list but a step of its own: rows that several products read (q, k, v;
//! gate, up) are quantised once.
//!
//! Tokens lie in tiles, as products take them: a tile is its blocks of 32 columns, and a block
//! has the bytes of all its tokens side by side.

#[cfg(target_arch = "x86_64")]
use super::float_tiles::Arrange;
use crate::exec::cpu::memory::{ALIGN, Args};
use crate::exec::cpu::panel::STRETCH;
use crate::exec::cpu::simd::{Entry, Isa, Kernel, Simd};
use bytemuck::{Pod, Zeroable};

/// Rows of activations, and what products want to know of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(in crate::exec::cpu) struct Shape {
    /// Rows at most.
    pub(in crate::exec::cpu) tokens: u32,
    /// Elements of a row: whole blocks.
    pub(in crate::exec::cpu) cols: u32,
    /// Rows of a tile.
    pub(in crate::exec::cpu) tile: u32,
    /// What is taken from each code of the weights.
    pub(in crate::exec::cpu) offset: i32,
    /// Whether the two halves of a block are summed apart: 0 or 1.
    pub(in crate::exec::cpu) halves: u32,
    /// What they become: a [`Number`].
    pub(in crate::exec::cpu) number: u32,
}

/// What activations become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec::cpu) enum Number {
    /// Blocks of int8.
    Int8,
    /// Pairs of columns of bf16, tokens side by side.
    #[cfg(target_arch = "x86_64")]
    Bf16,
    /// Columns of bf16 by tiles of tokens: 32 of each token in turn.
    #[cfg(target_arch = "x86_64")]
    Bf16Rows,
}

/// Bytes that a token has of a block: the numbers, their scale, two starts, two sums.
const TOKEN_BYTES: usize = STRETCH + 4 + 8 + 8;

impl Shape {
    /// Bytes of a tile.
    pub(in crate::exec::cpu) fn tile_bytes(self) -> usize {
        if self.number != Number::Int8 as u32 {
            let blocks = (self.cols as usize).div_ceil(STRETCH);
            return 2 * STRETCH * blocks * self.tile as usize;
        }
        let blocks = self.cols as usize / STRETCH;
        (blocks * self.tile as usize * TOKEN_BYTES).next_multiple_of(ALIGN)
    }

    /// The kernel that makes them.
    pub(in crate::exec::cpu) fn entry(self, isa: Isa) -> Entry {
        #[cfg(target_arch = "x86_64")]
        if let Some(tiles) = (self.number != Number::Int8 as u32)
            .then(|| isa.tiles::<Arrange>())
            .flatten()
        {
            return tiles;
        }
        isa.entry::<Quantise>()
    }

    /// Tiles of as many rows as there are at most.
    pub(in crate::exec::cpu) fn tiles(self) -> usize {
        self.tokens.div_ceil(self.tile) as usize
    }
}

/// A block of a tile: its tokens side by side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    /// The numbers, each a signed byte.
    pub(super) q: &'a [[u8; STRETCH]],
    /// Scales.
    pub(super) d: &'a [f32],
    /// What a sum of products with codes starts from, so that their offset is gone; of either
    /// half, or of the block.
    pub(super) start: [&'a [i32]; 2],
    /// The sum of the numbers times their scale: what minima of weights are multiplied by.
    pub(super) sum: [&'a [f32]; 2],
}

/// Quantised activations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles<'a> {
    bytes: &'a [u8],
    tile: usize,
    tile_bytes: usize,
}

impl<'a> Tiles<'a> {
    pub(super) fn new(bytes: &'a [u8], shape: Shape) -> Self {
        Self {
            bytes,
            tile: shape.tile as usize,
            tile_bytes: shape.tile_bytes(),
        }
    }

    /// Block `block` of tile `tile`.
    #[inline(always)]
    pub(super) fn block(&self, tile: usize, block: usize) -> Block<'a> {
        let n = self.tile;
        let at = tile * self.tile_bytes + block * n * TOKEN_BYTES;
        let (q, numbers) = self.bytes[at..][..n * TOKEN_BYTES].split_at(n * STRETCH);
        let part = |i: usize| &numbers[4 * n * i..][..4 * n];
        Block {
            q: q.as_chunks().0,
            d: bytemuck::cast_slice(part(0)),
            start: [bytemuck::cast_slice(part(1)), bytemuck::cast_slice(part(2))],
            sum: [bytemuck::cast_slice(part(3)), bytemuck::cast_slice(part(4))],
        }
    }
}

/// Quantises the tiles of its units: operand 0 into operand 1.
struct Quantise;

impl Kernel for Quantise {
    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let shape: Shape = args.params();
        let (cols, n) = (shape.cols as usize, shape.tile as usize);
        let x = args.f32s(0);
        let mut out = args.open::<u8>(1);
        for tile in args.units() {
            let tokens = tile * n..args.live().min((tile + 1) * n);
            let tile = out.unit(tile, shape.tile_bytes());
            for (t, token) in tokens.enumerate() {
                let x = x[token * cols..][..cols].as_chunks::<STRETCH>().0;
                for (x, out) in x.iter().zip(tile.chunks_exact_mut(n * TOKEN_BYTES)) {
                    let (q, numbers) = out.split_at_mut(n * STRETCH);
                    let (d, sums) = block(s, x, &mut q.as_chunks_mut().0[t]);
                    let sums = match shape.halves {
                        0 => [sums[0] + sums[1], 0],
                        _ => sums,
                    };
                    let starts = sums.map(|sum| -shape.offset * sum);
                    let numbers: &mut [[u8; 4]] = numbers.as_chunks_mut().0;
                    numbers[t] = d.to_ne_bytes();
                    for (half, start) in starts.iter().enumerate() {
                        numbers[(1 + half) * n + t] = start.to_ne_bytes();
                        numbers[(3 + half) * n + t] = (d * sums[half] as f32).to_ne_bytes();
                    }
                }
            }
        }
    }
}

/// `d = max |x| / 127`, `q = round(x / d)`, halves to even; also the sums of both halves of `q`.
///
/// Every level gets the same: each step is exact or rounded once.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "whole numbers below 2032")]
fn block<S: Simd>(s: S, x: &[f32; STRETCH], q: &mut [u8; STRETCH]) -> (f32, [i32; 2]) {
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
    let (one, inverse) = (s.splat(1.0), s.splat(inverse));
    let halves = q
        .chunks_exact_mut(STRETCH / 2)
        .zip(x.chunks_exact(STRETCH / 2));
    let mut sums = [0; 2];
    for ((q, x), sum) in halves.zip(&mut sums) {
        let mut total = s.splat(0.0);
        for (q, x) in q.chunks_exact_mut(S::LANES).zip(x.chunks_exact(S::LANES)) {
            let rounded = s.fma(s.load(x), inverse, s.splat(ROUND));
            s.store_bytes(q, rounded);
            let whole = s.fma(one, rounded, s.splat(-ROUND));
            total = s.fma(one, whole, total);
        }
        *sum = s.sum(total) as i32;
    }
    (largest / 127.0, sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::simd::Scalar;

    #[test]
    fn a_block_worked_by_hand() {
        let x: [f32; STRETCH] = std::array::from_fn(|i| i as f32 * 8.0 - 127.0);
        let mut q = [0; STRETCH];
        let (d, sums) = block(Scalar, &x, &mut q);
        assert_eq!(d, 1.0);
        assert_eq!(q[0].cast_signed(), -127);
        assert_eq!(q[31].cast_signed(), 121);
        assert_eq!(sums, [-1072, 976]);
    }

    #[test]
    fn nothing_and_next_to_nothing_are_zeros() {
        for x in [0.0, 1e-42] {
            let mut q = [7; STRETCH];
            let (_, sums) = block(Scalar, &[x; STRETCH], &mut q);
            assert_eq!((q, sums), ([0; STRETCH], [0; 2]));
        }
    }
}
