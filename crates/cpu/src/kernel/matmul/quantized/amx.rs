//! Products of quantized weights and int8 activations with AMX, in tiles of 16 rows, 16 tokens and
//! a block.
//!
//! The integers are those of `codes` and are scaled in the same order, so the results have the same
//! bits.

use super::activations::{ActivationBlock, ActivationTiles};
use super::decoded_span::{DecodedSpan, load_sums};
use crate::panel::{Codes, QK};
use crate::simd::Task;
use crate::simd::amx::{ByteTiles, IntSumTile, TILE};
use crate::simd::avx512::Avx512;
use crate::simd::rows::{Column, Rows, unroll};
use std::marker::PhantomData;
use std::ops::Range;

/// Subtracts the offset from stored codes, so that they become signed bytes.
pub(crate) struct SubtractOffset<'a> {
    pub(crate) span: &'a mut DecodedSpan,
    /// Offset, modulo 256.
    pub(crate) offset: u8,
}

impl<S> Task<S> for SubtractOffset<'_> {
    #[inline(always)]
    fn run(self, _: S) {
        for code in self.span.codes.as_flattened_mut().as_flattened_mut() {
            *code = code.wrapping_sub(self.offset);
        }
    }
}

/// Columns of a block that are multiplied at once.
pub(crate) const fn columns<C: Codes>() -> usize {
    QK / (1 + C::HALVES as usize)
}

/// Adds the products of stored blocks and all tokens, in tiles of [`columns`] columns.
pub(crate) struct AddProducts<'a, C> {
    /// Blocks of each panel.
    pub(crate) spans: &'a [DecodedSpan],
    pub(crate) blocks: Range<usize>,
    pub(crate) x: ActivationTiles<'a>,
    /// Sums of whole tiles, panel by panel.
    pub(crate) sums: &'a mut [Column],
    /// Number of sums per panel.
    pub(crate) sums_per_panel: usize,
    pub(crate) kind: PhantomData<C>,
}

impl<C: Codes> Task<ByteTiles> for AddProducts<'_, C> {
    #[inline(always)]
    fn run(self, tiles: ByteTiles) {
        for tile in 0..self.sums_per_panel / TILE {
            let sums = self.sums.chunks_exact_mut(self.sums_per_panel);
            for (span, sums) in self.spans.iter().zip(sums) {
                let x = self.x.blocks(tile, self.blocks.clone());
                let sums = &mut sums.as_chunks_mut().0[tile];
                add::<C>(&tiles, span, x, sums, self.blocks.start);
            }
        }
    }
}

/// Adds the products of a panel and a tile of tokens, starting at block `first`.
#[inline(always)]
fn add<'x, C: Codes>(
    tiles: &ByteTiles,
    span: &DecodedSpan,
    x: impl Iterator<Item = ActivationBlock<'x, TILE>>,
    to: &mut [Column; TILE],
    first: usize,
) {
    let s = Avx512::from(tiles);
    let (columns, halves) = const { (columns::<C>(), QK / columns::<C>()) };
    let mut sums = load_sums::<_, TILE>(s, to, first);
    let DecodedSpan {
        codes,
        scales,
        mins,
    } = span;
    let numbers = scales.iter().zip(mins);
    let mut ints = [IntSumTile::ZERO; 2];
    for (block, ((codes, (scale, min)), x)) in codes.iter().zip(numbers).zip(x).enumerate() {
        for h in 0..halves {
            // Alternates, so that a product does not wait until the previous one is read.
            let ints = &mut ints[(block + h) % 2];
            tiles.multiply(&codes[h * columns / 4..], x.q(), h * columns, ints);
            let scale = s.column(&scale[h]);
            unroll!(t < TILE => {
                let scale = s.mul(scale, s.splat_float(x.d()[t]));
                sums[t] = s.mul_add(s.floats(s.ints(s.bytes(&ints.0[t]))), scale, sums[t]);
            });
        }
        if C::MIN {
            for h in 0..halves {
                let min = s.column(&min[h]);
                unroll!(t < TILE => {
                    sums[t] = s.mul_add(min, s.splat_float(x.sum(h)[t]), sums[t]);
                });
            }
        }
    }
    unroll!(t < TILE => { s.put_column(&mut to[t], sums[t]); });
}
