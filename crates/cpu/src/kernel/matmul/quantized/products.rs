//! Products of quantized weights and int8 activations, sixteen rows of weights at a time.
//!
//! The sum of a row and a token runs over blocks of 32 columns: exact integers within a block, then
//! `sum = ints * (scale d) + sum`, in column order. Nothing else affects it, so the result of a
//! token has the same bits in a batch of any size, on any number of threads, and from packed or
//! mapped weights.

use super::activations::{self, ActivationBlock, ActivationTiles, StoredBlock};
#[cfg(target_arch = "x86_64")]
use super::amx;
use super::block_products::multiply;
use super::decoded_span::{DecodedSpan, load_sums};
use super::weight_decode::{COLUMNS, PanelColumns, decode_span, load_block};
#[cfg(target_arch = "x86_64")]
use crate::descriptors::QuantizedMatmul;
use crate::descriptors::{Weights, Write};
use crate::kernel::matmul::row_groups::column_spans;
use crate::memory::{Args, Out};
use crate::panel::{Codes, PanelBlock, QK, Sink, Sinks, StoredCodes, StoredScales};
use crate::simd::rows::{Column, ROWS, Rows, unroll};
use crate::simd::{Simd, Task};
use std::marker::PhantomData;
use std::ops::Range;

/// Panels that are processed together. Their codes stay in the L2 cache while all tokens are
/// processed, so that up to [`TOKENS_MAX`] tokens are loaded into L1 once for all of them. For few
/// tiles, the format of the weights is selected once for all of them.
const PANELS: usize = 8;

/// Tokens of the largest tile.
const TOKENS_MAX: usize = 16;

/// Returns the maximum number of tiles of `tokens` tokens that are multiplied by weights in
/// registers. With more tiles, it is faster to decode the weights to memory, once for all of them.
const fn gemv_tiles_max(weights: Weights, tokens: usize) -> usize {
    match weights {
        Weights::Packed(_) | Weights::Groups(_) if tokens == 16 => 4,
        Weights::Packed(_) | Weights::Groups(_) => 2,
        // Decoding is slow.
        Weights::Mapped(_) | Weights::Chunks => 1,
    }
}

/// Multiplies decoded blocks by `T` tokens of a tile of `N` while they are in registers.
struct GemvSink<'a, S: Rows, C, const T: usize, const N: usize, const F: usize> {
    s: S,
    x: std::slice::Iter<'a, StoredBlock<N>>,
    sums: [S::Floats; T],
    to: &'a mut [Column; T],
    codes: PhantomData<C>,
}

impl<S: Rows, C: Codes, const T: usize, const N: usize, const F: usize> Sink<S>
    for GemvSink<'_, S, C, T, N, F>
{
    #[inline(always)]
    fn push(&mut self, block: PanelBlock<S>) {
        let Some(x) = self.x.next() else {
            unreachable!("there is a block of activations for every block of weights");
        };
        multiply::<S, C, T, N, F, false>(self.s, &block, ActivationBlock(x), &mut self.sums);
        unroll!(t < T => { self.sums[t] = self.s.in_place(self.sums[t]); });
    }

    #[inline(always)]
    fn finish(self) {
        unroll!(t < T => { self.s.put_column(&mut self.to[t], self.sums[t]); });
    }
}

/// Sinks of a gemv tile.
struct GemvSinks<'a, S, C, const T: usize, const N: usize, const F: usize> {
    s: S,
    x: &'a [StoredBlock<N>],
    /// First block of columns.
    first: usize,
    sums: &'a mut [Column],
    sums_per_panel: usize,
    codes: PhantomData<C>,
}

impl<S: Rows, C: Codes, const T: usize, const N: usize, const F: usize> Sinks<S>
    for GemvSinks<'_, S, C, T, N, F>
{
    type Sink<'a>
        = GemvSink<'a, S, C, T, N, F>
    where
        Self: 'a;

    #[inline(always)]
    fn sink(&mut self, index: usize) -> Self::Sink<'_> {
        let to = self.sums[index * self.sums_per_panel + F..].first_chunk_mut();
        let to = to.expect("one sum per token");
        GemvSink {
            s: self.s,
            x: self.x.iter(),
            sums: load_sums::<S, T>(self.s, &*to, self.first),
            to,
            codes: PhantomData,
        }
    }
}

/// Stores decoded blocks in memory for a gemm tile.
struct StoreSink<'a, S, C> {
    s: S,
    codes: std::slice::IterMut<'a, StoredCodes>,
    scales: std::slice::IterMut<'a, StoredScales>,
    mins: std::slice::IterMut<'a, StoredScales>,
    kind: PhantomData<C>,
}

impl<S: Rows, C: Codes> Sink<S> for StoreSink<'_, S, C> {
    #[inline(always)]
    fn push(&mut self, block: PanelBlock<S>) {
        let s = self.s;
        let (Some(codes), Some(scale), Some(min)) =
            (self.codes.next(), self.scales.next(), self.mins.next())
        else {
            unreachable!("more blocks than the buffer holds");
        };
        for (word, code) in codes.iter_mut().zip(s.tile_words(block.codes)) {
            s.put_bytes(word, code);
        }
        for h in 0..1 + usize::from(C::HALVES) {
            s.put_column(&mut scale[h], block.scale[h]);
            if C::MIN {
                s.put_column(&mut min[h], block.min[h]);
            }
        }
    }

    #[inline(always)]
    fn finish(self) {}
}

/// Sinks of a gemm tile.
struct StoreSinks<'a, S, C> {
    s: S,
    spans: &'a mut [DecodedSpan],
    kind: PhantomData<C>,
}

impl<S: Rows, C: Codes> Sinks<S> for StoreSinks<'_, S, C> {
    type Sink<'a>
        = StoreSink<'a, S, C>
    where
        Self: 'a;

    #[inline(always)]
    fn sink(&mut self, index: usize) -> Self::Sink<'_> {
        let span = &mut self.spans[index];
        StoreSink {
            s: self.s,
            codes: span.codes.iter_mut(),
            scales: span.scales.iter_mut(),
            mins: span.mins.iter_mut(),
            kind: PhantomData,
        }
    }
}

/// Working memory of a thread.
pub(crate) struct Scratch<'a> {
    /// Blocks of the panels that are processed together.
    spans: &'a mut [DecodedSpan],
    /// Sums of all tokens between column spans, panel by panel.
    sums: &'a mut [Column],
    buffer: &'a mut [u8],
}

impl<'a> Scratch<'a> {
    pub(crate) fn bytes(tokens: usize, buffer: usize) -> usize {
        PANELS * (size_of::<DecodedSpan>() + tokens * size_of::<Column>()) + buffer
    }

    pub(crate) fn open(bytes: &'a mut [u8], buffer: usize) -> Self {
        let (bytes, buffer) = bytes.split_at_mut(bytes.len() - buffer);
        let (spans, sums) = bytes.split_at_mut(PANELS * size_of::<DecodedSpan>());
        let sums: &mut [f32] = bytemuck::cast_slice_mut(sums);
        Self {
            spans: bytemuck::cast_slice_mut(spans),
            sums: sums.as_chunks_mut().0,
            buffer,
        }
    }
}

/// Adds the products of stored blocks and the first `T` tokens of a tile of `N`.
struct GemmTile<'a, C, const T: usize, const N: usize> {
    span: &'a DecodedSpan,
    blocks: Range<usize>,
    x: ActivationTiles<'a>,
    tile: usize,
    sums: &'a mut [Column],
    kind: PhantomData<C>,
}

impl<S: Simd, C: Codes, const T: usize, const N: usize> Task<S> for GemmTile<'_, C, T, N> {
    #[inline(always)]
    fn run(self, s: S) {
        let mut sums = load_sums::<S, T>(s, self.sums, self.blocks.start);
        let DecodedSpan {
            codes,
            scales,
            mins,
        } = self.span;
        let blocks = codes.iter().zip(scales.iter().zip(mins));
        for ((codes, (scale, min)), x) in blocks.zip(self.x.blocks(self.tile, self.blocks)) {
            let block = load_block::<S, C>(s, codes, scale, min);
            multiply::<S, C, T, N, 0, true>(s, &block, x, &mut sums);
        }
        for (carry, sum) in self.sums.iter_mut().zip(sums) {
            s.put_column(carry, sum);
        }
    }
}

/// A product of some panels and quantized activations.
pub(crate) struct PanelProduct<'a, 'b> {
    pub(crate) args: &'a Args<'b>,
    /// First panel of the rows of an output row: of the matrix, or of the expert's.
    pub(crate) origin: usize,
    /// Panels, relative to the first one.
    pub(crate) panels: Range<usize>,
    pub(crate) x: ActivationTiles<'a>,
    /// Number of rows of activations.
    pub(crate) live: usize,
    pub(crate) scratch: Scratch<'a>,
    pub(crate) y: ProductRows<'a, 'b>,
}

/// A product of panels with codes `C`.
pub(crate) struct ProductOf<'a, 'b, C>(pub(crate) PanelProduct<'a, 'b>, pub(crate) PhantomData<C>);

/// Output rows of a product.
pub(crate) struct ProductRows<'a, 'b> {
    pub(crate) out: &'a mut Out<'b, f32>,
    /// Elements of a row.
    pub(crate) width: usize,
    /// Rows of the activations; `None` if they are the same.
    pub(crate) rows: Option<&'a [u32]>,
    pub(crate) write: Write,
}

impl ProductRows<'_, '_> {
    /// Writes the sums of a row of activations for these panels.
    #[inline(always)]
    fn put<'s>(
        &mut self,
        t: usize,
        panels: Range<usize>,
        scale: f32,
        sums: impl Iterator<Item = &'s Column>,
    ) {
        let row = self.rows.map_or(t, |rows| rows[t] as usize);
        let y = self.out.panels(row, self.width, panels, ROWS);
        for (y, sums) in y.chunks_mut(ROWS).zip(sums) {
            for (y, sum) in y.iter_mut().zip(sums) {
                let product = scale * sum;
                *y = if self.write == Write::Add {
                    *y + product
                } else {
                    product
                };
            }
        }
    }
}

impl<S: Simd, C: Codes> Task<S> for ProductOf<'_, '_, C> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self(mut product, _) = self;
        let PanelProduct {
            args, origin, live, ..
        } = product;
        let weights = args.codes().weights;
        let width = activations::width(live, S::TOKENS);
        #[cfg(target_arch = "x86_64")]
        let has_amx = args.codes().amx.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        let has_amx = false;
        let stores = match has_amx {
            true => width > 8,
            false => live > gemv_tiles_max(weights, S::TOKENS) * S::TOKENS,
        };
        let panels_at_once = match stores || args.matmul().cols <= span_columns(weights, width) {
            true => PANELS,
            // Weights are read in the order of memory, all columns of a panel before the next one.
            false => 1,
        };
        // Formats of blocks do not contain the scale of a matrix.
        let scale = matrix_scale(args, origin * ROWS);
        let range = product.panels.clone();
        for first in range.clone().step_by(panels_at_once) {
            let panels = first..range.end.min(first + panels_at_once);
            let at = origin + panels.start..origin + panels.end;
            if stores {
                gemm_tile::<S, C>(s, &mut product, at);
            } else {
                for tile in 0..live.div_ceil(S::TOKENS) {
                    gemv_tiles::<S, C>(s, &mut product, at.clone(), tile);
                }
            }
            // Token by token: the results of a token for these panels are contiguous.
            for t in 0..live {
                let sums = &product.scratch.sums[t..];
                let sums = sums.iter().step_by(sums_per_panel::<S>(live));
                product.y.put(t, panels.clone(), scale, sums);
            }
        }
    }
}

/// Returns the scale of the weights of the matrix with this row; 1 if there is none.
fn matrix_scale(args: &Args<'_>, row: usize) -> f32 {
    let cols = args.matmul().cols;
    match (args.codes().weights, args.scales()) {
        (Weights::Packed(_) | Weights::Mapped(_), Some(scales)) => scales.at(row, 0, cols)[0],
        _ => 1.0,
    }
}

/// Returns the number of sums per panel: 1 for one token, otherwise the tokens rounded up to whole
/// tiles. The launch reserves at least as many.
fn sums_per_panel<S: Rows>(live: usize) -> usize {
    match live {
        1 => 1,
        _ => live.next_multiple_of(S::TOKENS),
    }
}

/// Returns the number of columns of a span of a gemv tile with `tokens` tokens. With fewer tokens,
/// more columns of a tile fit the L1 cache.
fn span_columns(weights: Weights, tokens: usize) -> usize {
    match weights {
        Weights::Packed(_) | Weights::Groups(_) => COLUMNS * (TOKENS_MAX / tokens),
        Weights::Mapped(_) | Weights::Chunks => COLUMNS,
    }
}

/// Computes the sums of some panels for the tokens of a tile. They are decoded once or twice per
/// tile; the second time they are in cache.
#[inline(always)]
fn gemv_tiles<S: Simd, C: Codes>(
    s: S,
    product: &mut PanelProduct<'_, '_>,
    panels: Range<usize>,
    tile: usize,
) {
    let live = product.live;
    macro_rules! gemv {
        ($tokens:literal of $all:literal from $first:literal) => {
            gemv_tile::<S, C, $tokens, $all, $first>(s, product, panels.clone(), tile)
        };
    }
    match activations::width(live, S::TOKENS) {
        1 => gemv!(1 of 1 from 0),
        2 => gemv!(2 of 2 from 0),
        // Conditions on the level are evaluated at instantiation.
        8 if const { S::TOKENS >= 8 } => gemv!(8 of 8 from 0),
        // Sums and codes of sixteen tokens need more registers than there are.
        16 if const { S::TOKENS >= 16 } => {
            gemv!(8 of 16 from 0);
            match live - tile * S::TOKENS {
                ..=8 => {}
                9..=12 => gemv!(4 of 16 from 8),
                _ => gemv!(8 of 16 from 8),
            }
        }
        _ => gemv!(4 of 4 from 0),
    }
}

/// Computes the sums of some panels for `T` tokens of a tile of `N` tokens, starting at token `F`.
#[inline(always)]
fn gemv_tile<S: Simd, C: Codes, const T: usize, const N: usize, const F: usize>(
    s: S,
    product: &mut PanelProduct<'_, '_>,
    panels: Range<usize>,
    tile: usize,
) {
    let PanelProduct {
        args,
        x,
        live,
        scratch,
        ..
    } = product;
    let step = span_columns(args.codes().weights, N);
    for columns in column_spans(args.matmul().cols, step) {
        let blocks = columns.start / QK..columns.end / QK;
        let sinks = GemvSinks::<S, C, T, N, F> {
            s,
            first: blocks.start,
            x: x.stored::<N>(tile, blocks),
            sums: &mut scratch.sums[N * tile..],
            sums_per_panel: sums_per_panel::<S>(*live),
            codes: PhantomData,
        };
        let panels = panels.clone();
        let at = PanelColumns { panels, columns };
        decode_span::<C, S, _>(s, args, at, scratch.buffer, sinks);
    }
}

/// Computes the sums of some panels for all tokens.
#[expect(
    clippy::too_many_lines,
    reason = "the AMX path and the tiles of every level share the loop over columns"
)]
#[inline(always)]
fn gemm_tile<S: Simd, C: Codes>(s: S, product: &mut PanelProduct<'_, '_>, panels: Range<usize>) {
    let &mut PanelProduct {
        args,
        x,
        live,
        ref mut scratch,
        ..
    } = product;
    #[cfg(target_arch = "x86_64")]
    let &QuantizedMatmul { amx, quantized, .. } = args.codes();
    for columns in column_spans(args.matmul().cols, COLUMNS) {
        for (index, panel) in panels.clone().enumerate() {
            let spans = &mut scratch.spans[index..=index];
            let sinks = StoreSinks::<S, C> {
                s,
                spans,
                kind: PhantomData,
            };
            let at = PanelColumns {
                panels: panel..panel + 1,
                columns: columns.clone(),
            };
            decode_span::<C, S, _>(s, args, at, scratch.buffer, sinks);
            #[cfg(target_arch = "x86_64")]
            if amx.is_some() {
                let offset = quantized.offset.to_le_bytes()[0];
                let span = &mut scratch.spans[index];
                s.outlined(amx::SubtractOffset { span, offset });
            }
        }
        let blocks = columns.start / QK..columns.end / QK;
        let spans = &scratch.spans[..panels.len()];
        #[cfg(target_arch = "x86_64")]
        if let Some(amx) = amx {
            let add = amx::AddProducts::<C> {
                spans,
                blocks,
                x,
                sums: scratch.sums,
                sums_per_panel: sums_per_panel::<S>(live),
                kind: PhantomData,
            };
            amx.byte_tiles(amx::columns::<C>(), add);
            continue;
        }
        // The weights of a panel stay in the L1 cache for several tiles.
        for start in (0..live).step_by(TOKENS_MAX) {
            let sums = scratch.sums.chunks_exact_mut(sums_per_panel::<S>(live));
            for (span, sums) in spans.iter().zip(sums) {
                for first in (start..live.min(start + TOKENS_MAX)).step_by(S::TOKENS) {
                    macro_rules! tile {
                        ($tokens:literal of $all:literal) => {
                            s.outlined(GemmTile::<C, $tokens, $all> {
                                span,
                                blocks: blocks.clone(),
                                x,
                                tile: first / S::TOKENS,
                                sums: &mut sums[first..],
                                kind: PhantomData,
                            })
                        };
                    }
                    let tokens = live - first;
                    // Conditions on the level are evaluated at instantiation.
                    if const { S::TOKENS == 16 } {
                        match tokens {
                            ..=4 => tile!(4 of 16),
                            5..=8 => tile!(8 of 16),
                            _ => tile!(16 of 16),
                        }
                    } else if const { S::TOKENS == 8 } {
                        match tokens {
                            ..=4 => tile!(4 of 8),
                            _ => tile!(8 of 8),
                        }
                    } else {
                        const { assert!(S::TOKENS == 4 || S::TOKENS == 8 || S::TOKENS == 16) };
                        tile!(4 of 4);
                    }
                }
            }
        }
    }
}
