//! `x[32 b + i] = d[b] q[32 b + i]`: quantizes activations to int8 for products with quantized
//! weights.
//!
//! A step of its own and not an operation of the list: rows that several products read (q, k, v;
//! gate, up) are quantized once.
//!
//! Tokens are stored in tiles: a tile is a sequence of blocks of 32 columns, and a block holds the
//! int8 values of each of its tokens, then the scales of all tokens, then each of the other numbers
//! of all tokens.

use crate::descriptors::{
    ActivationFormat, ActivationShape, QUANTIZE_OUT, QUANTIZE_X, TOKEN_BYTES, TOKEN_WORDS,
};
#[cfg(target_arch = "x86_64")]
use crate::kernel::matmul::float::amx::ArrangeBf16;
use crate::memory::Args;
use crate::panel::QK;
use crate::simd::{Entry, Isa, Kernel, Simd, Uses};
use bytemuck::Pod;
use std::ops::Range;

/// Returns the kernel that quantizes activations to this layout.
pub(crate) fn entry(shape: ActivationShape, isa: Isa) -> Entry {
    let is_wide = shape.format != ActivationFormat::Int8 as u32;
    #[cfg(target_arch = "x86_64")]
    if let Some(tiles) = is_wide.then(|| isa.tiles::<ArrangeBf16>()).flatten() {
        return tiles;
    }
    debug_assert!(!is_wide, "only AMX kernels use bf16");
    isa.entry::<Quantize>()
}

/// A block of a tile of `N` tokens, as stored.
pub(crate) type StoredBlock<const N: usize> = [[u32; N]; TOKEN_WORDS];

/// A block of a tile of `N` tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActivationBlock<'a, const N: usize>(pub(crate) &'a StoredBlock<N>);

impl<'a, const N: usize> ActivationBlock<'a, N> {
    /// int8 values of each token.
    #[inline(always)]
    pub(crate) fn q(self) -> &'a [[u8; QK]; N] {
        let bytes: &[u8] = bytemuck::cast_slice(self.0.as_flattened());
        bytes
            .as_chunks()
            .0
            .first_chunk()
            .expect("values of N tokens")
    }

    /// Scales of the tokens.
    #[inline(always)]
    pub(crate) fn d(self) -> &'a [f32; N] {
        self.numbers(0)
    }

    /// Start values of the sums of products, which compensate for the offset of the codes; per
    /// half, or for the block.
    #[inline(always)]
    pub(crate) fn start(self, half: usize) -> &'a [i32; N] {
        self.numbers(1 + half)
    }

    /// Sums of the values times their scale, which minima of weights are multiplied by.
    #[inline(always)]
    pub(crate) fn sum(self, half: usize) -> &'a [f32; N] {
        self.numbers(3 + half)
    }

    #[inline(always)]
    fn numbers<T: Pod>(self, i: usize) -> &'a [T; N] {
        let numbers = bytemuck::cast_slice(&self.0[QK / 4 + i]);
        numbers.first_chunk().expect("one per token")
    }
}

/// Quantized activations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActivationTiles<'a> {
    words: &'a [u32],
    tile_words: usize,
}

impl<'a> ActivationTiles<'a> {
    pub(crate) fn new(bytes: &'a [u8], shape: ActivationShape) -> Self {
        Self {
            words: bytemuck::cast_slice(bytes),
            tile_words: shape.tile_bytes() / 4,
        }
    }

    /// Blocks of a tile, which has `N` tokens; see [`width`].
    #[inline(always)]
    pub(crate) fn blocks<const N: usize>(
        self,
        tile: usize,
        blocks: Range<usize>,
    ) -> impl Iterator<Item = ActivationBlock<'a, N>> {
        self.stored::<N>(tile, blocks).iter().map(ActivationBlock)
    }

    /// Returns the blocks of a tile in their stored form.
    #[inline(always)]
    pub(crate) fn stored<const N: usize>(
        self,
        tile: usize,
        blocks: Range<usize>,
    ) -> &'a [StoredBlock<N>] {
        let tokens = self.words[tile * self.tile_words..].as_chunks::<N>().0;
        &tokens.as_chunks::<TOKEN_WORDS>().0[blocks]
    }
}

impl ActivationTiles<'_> {
    /// Copies some blocks of tiles of one row into tiles of `width` rows.
    #[inline(always)]
    pub(crate) fn gather<'o>(
        self,
        rows: impl Iterator<Item = (usize, Range<usize>)>,
        width: usize,
        out: &'o mut [u32],
    ) -> ActivationTiles<'o> {
        let mut tile_words = 0;
        for (at, (tile, blocks)) in rows.enumerate() {
            tile_words = blocks.len() * width * TOKEN_WORDS;
            let (from, t) = (self.stored::<1>(tile, blocks), at % width);
            let to = &mut out[at / width * tile_words..][..tile_words];
            for (from, to) in from.iter().zip(to.chunks_exact_mut(width * TOKEN_WORDS)) {
                let (q, numbers) = from.as_flattened().split_at(QK / 4);
                let (to_q, to_numbers) = to.split_at_mut(width * QK / 4);
                to_q.as_chunks_mut::<{ QK / 4 }>().0[t].copy_from_slice(q);
                for (to, number) in to_numbers.chunks_exact_mut(width).zip(numbers) {
                    to[t] = *number;
                    if at % width == 0 {
                        // Missing rows are multiplied too; zeros avoid slow subnormal numbers.
                        to[1..].fill(0);
                    }
                }
            }
        }
        ActivationTiles {
            words: out,
            tile_words,
        }
    }
}

/// Tokens of a tile for `live` active rows: if one tile is enough, the smallest width that has a
/// kernel.
pub(crate) const fn width(live: usize, tile: usize) -> usize {
    let enough = match live {
        ..=1 => 1,
        2 => 2,
        3..=4 => 4,
        5..=8 => 8,
        _ => 16,
    };
    if enough < tile { enough } else { tile }
}

/// Quantizes the tiles of its units.
struct Quantize;

impl Kernel for Quantize {
    const USES: Uses = Uses::Vectors;

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let shape: ActivationShape = args.params();
        let (cols, n) = (shape.cols as usize, shape.tile as usize);
        let width = width(args.active_rows(), n);
        let x = args.f32s(QUANTIZE_X);
        let mut out = args.open::<u8>(QUANTIZE_OUT);
        for tile in args.units() {
            let tokens = tile * n..args.active_rows().min((tile + 1) * n);
            let tile = out.unit(tile, shape.tile_bytes());
            // Missing tokens are multiplied too; zeros avoid slow subnormal numbers.
            for out in tile.chunks_exact_mut(width * TOKEN_BYTES) {
                for number in out[width * QK..].as_chunks_mut().0.chunks_exact_mut(width) {
                    number[width.min(tokens.len())..].fill([0u8; 4]);
                }
            }
            for (t, token) in tokens.enumerate() {
                let x = x[token * cols..][..cols].as_chunks::<QK>().0;
                for (x, out) in x.iter().zip(tile.chunks_exact_mut(width * TOKEN_BYTES)) {
                    let (q, numbers) = out.split_at_mut(width * QK);
                    let (d, sums) = quantize_block(s, x, &mut q.as_chunks_mut().0[t]);
                    let sums = match shape.halves {
                        0 => [sums[0] + sums[1], 0],
                        _ => sums,
                    };
                    let starts = sums.map(|sum| -shape.offset * sum);
                    let numbers: &mut [[u8; 4]] = numbers.as_chunks_mut().0;
                    numbers[t] = d.to_ne_bytes();
                    for (half, start) in starts.iter().enumerate() {
                        numbers[(1 + half) * width + t] = start.to_ne_bytes();
                        numbers[(3 + half) * width + t] = (d * sums[half] as f32).to_ne_bytes();
                    }
                }
            }
        }
    }
}

/// `d = max |x| / 127`, `q = round(x / d)`, ties to even; also returns the sums of both halves of
/// `q`.
///
/// The result is the same at every level: each step is exact or rounded once.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "whole numbers below 2032")]
pub fn quantize_block<S: Simd>(s: S, x: &[f32; QK], q: &mut [u8; QK]) -> (f32, [i32; 2]) {
    /// Adding this number leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // The bits of absolute values compare like the values.
    let largest = x.iter().fold(0, |m, x| m.max(x.to_bits() & 0x7fff_ffff));
    let largest = f32::from_bits(largest);
    let inverse = 127.0 / largest;
    // Zero for blocks of zeros and blocks so small that the inverse overflows.
    let inverse = if inverse < f32::INFINITY {
        inverse
    } else {
        0.0
    };
    let (one, inverse) = (s.splat(1.0), s.splat(inverse));
    let halves = q.chunks_exact_mut(QK / 2).zip(x.chunks_exact(QK / 2));
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
