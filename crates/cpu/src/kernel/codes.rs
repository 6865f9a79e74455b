//! Products of quantized weights and int8 activations, sixteen rows of weights at a time.
//!
//! The sum of a row and a token runs over blocks of 32 columns: exact integers within a block, then
//! `sum = ints * (scale d) + sum`, in column order. Nothing else affects it, so the result of a
//! token has the same bits in a batch of any size, on any number of threads, and from packed or
//! mapped weights.

use super::block_products::multiply;
#[cfg(target_arch = "x86_64")]
use super::code_tiles;
use super::decoded_span::{DecodedSpan, load_sums};
use super::quantize::{self, ActivationBlock, ActivationTiles, StoredBlock};
use super::row_groups::column_spans;
use super::weight_decode::{COLUMNS, PanelColumns, decode_span, load_block};
use super::{Launch, Request};
use crate::descriptors::{
    ActivationFormat, ActivationShape, MatmulShape, QuantizedMatmul, WeightReader, Weights, Write,
};
use crate::memory::Args;
use crate::panel::affine::{Affine4Bit, Affine8Bit, Groups};
use crate::panel::{
    self, AffineWidth, Codes, Format, Formats, Kind, Pack, PanelBlock, QK, Sink, Sinks,
    StoredCodes, StoredScales,
};
use crate::simd::rows::{Column, ROWS, Rows, unroll};
use crate::simd::{Kernel, Simd, Task, Unpack};
use crate::work::Split;
use std::marker::PhantomData;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_core::op::operands::gemm::{AT, COUNT};
use tabla_quant::Scales;

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
        Weights::Packed(_) | Weights::Groups(..) if tokens == 16 => 4,
        Weights::Packed(_) | Weights::Groups(..) => 2,
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
struct Scratch<'a> {
    /// Blocks of the panels that are processed together.
    spans: &'a mut [DecodedSpan],
    /// Sums of all tokens between column spans, panel by panel.
    sums: &'a mut [Column],
    buffer: &'a mut [u8],
}

impl<'a> Scratch<'a> {
    fn bytes(tokens: usize, buffer: usize) -> usize {
        PANELS * (size_of::<DecodedSpan>() + tokens * size_of::<Column>()) + buffer
    }

    fn open(bytes: &'a mut [u8], buffer: usize) -> Self {
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

struct CodeMatmul<C>(PhantomData<C>);

impl<C: Formats> Kernel for CodeMatmul<C> {
    const BYTE_PRODUCTS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Args<'_>) {
        let &MatmulShape {
            rows, cols, write, ..
        } = args.matmul();
        let &QuantizedMatmul {
            weights, quantized, ..
        } = args.codes();
        let live = args.active_rows();
        let x = ActivationTiles::new(args.bytes(COUNT + 1), quantized);
        let mut scratch = args.open::<u8>(COUNT);
        let mut scratch = Scratch::open(scratch.whole(), weights.buffer_bytes());
        let mut y = args.open::<f32>(AT.y);
        let width = quantize::width(live, S::TOKENS);
        #[cfg(target_arch = "x86_64")]
        let has_amx = args.codes().amx.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        let has_amx = false;
        let stores = match has_amx {
            true => width > 8,
            false => live > gemv_tiles_max(weights, S::TOKENS) * S::TOKENS,
        };
        let panels_at_once = match stores || cols <= span_columns(weights, width) {
            true => PANELS,
            // Weights are read in the order of memory, all columns of a panel before the next one.
            false => 1,
        };
        let range = args.range();
        for first in range.clone().step_by(panels_at_once) {
            let panels = first..range.end.min(first + panels_at_once);
            if stores {
                gemm_tile::<S, C>(s, &args, panels.clone(), x, &mut scratch);
            } else {
                for tile in 0..live.div_ceil(S::TOKENS) {
                    gemv_tiles::<S, C>(s, &args, (panels.clone(), tile), x, &mut scratch);
                }
            }
            // Token by token: the results of a token for these panels are contiguous.
            let scale = matrix_scale(&args);
            for t in 0..live {
                let y = y.panels(t, rows, panels.clone(), ROWS);
                let sums = scratch.sums[t..].iter().step_by(sums_per_panel::<S>(live));
                for (y, sums) in y.chunks_mut(ROWS).zip(sums) {
                    for (y, sum) in y.iter_mut().zip(sums) {
                        let product = scale * sum;
                        *y = if write == Write::Add {
                            *y + product
                        } else {
                            product
                        };
                    }
                }
            }
        }
    }
}

/// Returns the scale of all weights of a matrix, which formats of blocks do not contain; 1 if there is none.
fn matrix_scale(args: &Args<'_>) -> f32 {
    let cols = args.matmul().cols;
    match (args.codes().weights, args.scales()) {
        (Weights::Packed(_) | Weights::Mapped(_), Some(scales)) => scales.at(0, 0, cols)[0],
        _ => 1.0,
    }
}

/// Returns the number of sums per panel: 1 for one token, otherwise the tokens rounded up to whole
/// tiles. [`launch`] reserves at least as many.
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
        Weights::Packed(_) | Weights::Groups(..) => COLUMNS * (TOKENS_MAX / tokens),
        Weights::Mapped(_) | Weights::Chunks => COLUMNS,
    }
}

/// Computes the sums of some panels for the tokens of a tile. They are decoded once or twice per
/// tile; the second time they are in cache.
#[inline(always)]
fn gemv_tiles<S: Simd, C: Formats>(
    s: S,
    args: &Args<'_>,
    (panels, tile): (Range<usize>, usize),
    x: ActivationTiles<'_>,
    scratch: &mut Scratch<'_>,
) {
    let live = args.active_rows();
    macro_rules! gemv {
        ($tokens:literal of $all:literal from $first:literal) => {
            gemv_tile::<S, C, $tokens, $all, $first>(s, args, (panels.clone(), tile), x, scratch)
        };
    }
    match quantize::width(live, S::TOKENS) {
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
fn gemv_tile<S: Simd, C: Formats, const T: usize, const N: usize, const F: usize>(
    s: S,
    args: &Args<'_>,
    (panels, tile): (Range<usize>, usize),
    x: ActivationTiles<'_>,
    scratch: &mut Scratch<'_>,
) {
    let step = span_columns(args.codes().weights, N);
    for columns in column_spans(args.matmul().cols, step) {
        let blocks = columns.start / QK..columns.end / QK;
        let sinks = GemvSinks::<S, C, T, N, F> {
            s,
            first: blocks.start,
            x: x.stored::<N>(tile, blocks),
            sums: &mut scratch.sums[N * tile..],
            sums_per_panel: sums_per_panel::<S>(args.active_rows()),
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
fn gemm_tile<S: Simd, C: Formats>(
    s: S,
    args: &Args<'_>,
    panels: Range<usize>,
    x: ActivationTiles<'_>,
    scratch: &mut Scratch<'_>,
) {
    let live = args.active_rows();
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
                s.outlined(code_tiles::SubtractOffset { span, offset });
            }
        }
        let blocks = columns.start / QK..columns.end / QK;
        let spans = &scratch.spans[..panels.len()];
        #[cfg(target_arch = "x86_64")]
        if let Some(amx) = amx {
            let add = code_tiles::AddProducts::<C> {
                spans,
                blocks,
                x,
                sums: scratch.sums,
                sums_per_panel: sums_per_panel::<S>(live),
                kind: PhantomData,
            };
            amx.byte_tiles(code_tiles::columns::<C>(), add);
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

/// Returns the kernel of a matrix product, if the type of the weights has panels at this level.
pub(super) fn link(request: &Request<'_>, matmul: MatmulShape) -> Option<Launch> {
    if !request.isa.panels() {
        return None;
    }
    struct LinkFormat<'a>(&'a Request<'a>, MatmulShape, DType);
    impl panel::FormatVisitor for LinkFormat<'_> {
        type Out = Launch;
        fn format<F: Format>(self) -> Launch {
            let Self(request, matmul, dtype) = self;
            if !request.packed {
                let weights = Weights::Mapped(dtype);
                return launch::<F::Codes>(request, weights, F::OFFSET, matmul);
            }
            Launch {
                pack: Some(Pack::Blocks(const { &F::LAYOUT })),
                ..launch::<F::Codes>(request, Weights::Packed(dtype), F::OFFSET, matmul)
            }
        }
    }
    let dtype = request.variant?;
    let [rows, cols] = [matmul.rows, matmul.cols];
    let single = |scales: &Scales<'_>| scales.group[0] >= rows && scales.group[1] >= cols;
    if !request.scales.as_ref().is_none_or(single) {
        return None;
    }
    panel::visit(dtype, LinkFormat(request, matmul, dtype))
}

/// Returns the kernel for a type without panels that unpacks to integers.
pub(super) fn link_chunks(
    request: &Request<'_>,
    (unpack, min): (Unpack, bool),
    matmul: MatmulShape,
) -> Launch {
    let packed = match request.variant {
        _ if !request.isa.panels() => None,
        Some(DType::Affine4) => link_groups::<Affine4Bit>(request, unpack, matmul),
        Some(DType::Affine8) => link_groups::<Affine8Bit>(request, unpack, matmul),
        _ => None,
    };
    if let Some(launch) = packed {
        return launch;
    }
    /// Returns whether the two halves of a block have separate scales.
    struct Halves;
    impl panel::FormatVisitor for Halves {
        type Out = bool;
        fn format<F: Format>(self) -> bool {
            F::Codes::HALVES
        }
    }
    let of_blocks = request
        .variant
        .and_then(|dtype| panel::visit(dtype, Halves));
    let halves = of_blocks.or_else(|| {
        let scales = request.scales.as_ref()?;
        // Scale groups may be whole blocks.
        Some(!scales.group[1].is_multiple_of(QK))
    });
    let launch = match (halves.unwrap_or(true), min) {
        (true, true) => launch::<Kind<128, true, true>>,
        (true, false) => launch::<Kind<128, true, false>>,
        (false, true) => launch::<Kind<128, false, true>>,
        (false, false) => launch::<Kind<128, false, false>>,
    };
    Launch {
        reader: Some(WeightReader::Ints(unpack)),
        ..launch(request, Weights::Chunks, 0, matmul)
    }
}

/// Returns the kernel for packed affine codes.
fn link_groups<W: AffineWidth>(
    request: &Request<'_>,
    unpack: Unpack,
    matmul: MatmulShape,
) -> Option<Launch> {
    let scales = request.scales.filter(|_| request.packed)?;
    let groups = Groups::of::<W>(&scales, matmul.cols)?;
    let weights = Weights::Groups(request.variant?, groups);
    Some(Launch {
        pack: Some(Pack::Affine(unpack, groups)),
        ..launch::<W::Codes>(request, weights, 0, matmul)
    })
}

fn launch<C: Formats>(
    request: &Request<'_>,
    weights: Weights,
    offset: i32,
    matmul: MatmulShape,
) -> Launch {
    let isa = request.isa;
    let tokens = matmul.tokens;
    let tile = if tokens == 1 { 1 } else { isa.tile_tokens() };
    let quantized = ActivationShape {
        tokens,
        cols: matmul.columns(),
        tile,
        offset: match C::MAX {
            128 => isa.signed_offset(),
            _ => offset,
        },
        halves: u32::from(C::HALVES),
        format: ActivationFormat::Int8 as u32,
    };
    let sums_per_panel = tokens.next_multiple_of(tile) as usize;
    Launch {
        scratch: Scratch::bytes(sums_per_panel, weights.buffer_bytes()),
        quantize: Some(quantized),
        codes: Some(QuantizedMatmul {
            weights,
            quantized,
            #[cfg(target_arch = "x86_64")]
            amx: isa.amx(),
        }),
        ..request.launch::<CodeMatmul<C>>(Split::Units(matmul.rows.div_ceil(ROWS)), tokens)
    }
}
