//! Matrix products of BF16 weights with AMX, in tiles of 16 rows, 16 tokens and 32 columns.
//!
//! Weights are read row by row in file order; activations are rounded to bf16. Every sum is one
//! chain of products along the columns, in an order that depends only on their number.

use crate::descriptors::{
    ActivationFormat, ActivationShape, MatmulShape, QUANTIZE_OUT, QUANTIZE_X, Write,
};
use crate::kernel::{Launch, Request};
use crate::memory::{Args, Out};
use crate::simd::ProofKernel;
use crate::simd::amx::{Amx, ColumnSpan, ROW_BYTES, Strides, SumTile, TILE, TileShape};
use crate::work::Split;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_core::op::operands::gemm::{AT, COUNT};

/// Columns of a step.
pub(super) const STEP: usize = ROW_BYTES / 2;

/// Rows multiplied at once: two tiles.
const PAIR: usize = 2 * TILE;

/// Tokens of a tile.
const LANES: u32 = 16;
const _: () = assert!(LANES as usize == TILE);

/// Bytes of a tile of tokens per step.
const BLOCK_BYTES: usize = TILE * ROW_BYTES;

/// Steps after which sums are written to the output, and bytes of activations per pass over the
/// rows: both stay in the L2 cache.
const STEPS: usize = 64;
const ACTIVATIONS_BYTES: usize = 1 << 20;

/// Layout of activations rounded to bf16.
pub(super) fn bf16_shape(matmul: MatmulShape, format: ActivationFormat) -> ActivationShape {
    ActivationShape {
        tokens: matmul.tokens,
        cols: matmul.columns(),
        tile: if matmul.tokens == 1 { 1 } else { LANES },
        offset: 0,
        halves: 0,
        format: format as u32,
    }
}

/// Arranges activations in tile order.
///
/// `[tokens / 16][columns / 2][16][2]` or, as rows, `[tokens / 16][columns / 32][16][32]`;
/// `[columns]` for one token.
pub(crate) struct ArrangeBf16;

impl ProofKernel<Amx> for ArrangeBf16 {
    #[inline(always)]
    fn run(s: Amx, mut args: Args<'_>) {
        let shape: ActivationShape = args.params();
        let cols = shape.cols as usize;
        let x = args.f32s(QUANTIZE_X);
        let mut padded = [0.0; STEP];
        let mut round_step = |t: usize, step: usize| {
            let rest = &x[t * cols..][step * STEP..cols];
            s.round(rest.first_chunk().unwrap_or_else(|| {
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            }))
        };
        let mut out = args.open::<u8>(QUANTIZE_OUT);
        for unit in args.units() {
            let tile = out.unit(unit, shape.tile_bytes());
            let first = unit * shape.tile as usize;
            let tokens = first..args.active_rows().min(first + shape.tile as usize);
            if shape.tile == 1 || shape.format == ActivationFormat::Bf16Rows as u32 {
                let lanes = shape.tile as usize;
                for (lane, t) in tokens.enumerate() {
                    let lines = tile.as_chunks_mut().0.chunks_exact_mut(lanes);
                    for (step, lines) in lines.enumerate() {
                        lines[lane] = round_step(t, step);
                    }
                }
                continue;
            }
            for (step, bytes) in tile.chunks_exact_mut(BLOCK_BYTES).enumerate() {
                let mut block = SumTile::ZERO;
                for (t, row) in tokens.clone().zip(&mut block.0) {
                    bytemuck::bytes_of_mut(row).copy_from_slice(&round_step(t, step));
                }
                s.transpose(&mut block);
                bytes.copy_from_slice(bytemuck::bytes_of(&block.0));
            }
        }
    }
}

/// Operands of a product.
#[derive(Clone, Copy)]
struct Operands<'a> {
    w: &'a [u8],
    x: &'a [u8],
    cols: usize,
    /// Number of interleaved tokens.
    lanes: usize,
}

/// Rows and tokens of a tile.
#[derive(Clone)]
struct TileRange {
    rows: Range<usize>,
    tokens: Range<usize>,
}

impl<'a> Operands<'a> {
    fn steps(self) -> usize {
        self.cols.div_ceil(STEP)
    }

    /// Copies the columns of a row tile after the last whole step, padded with zeros.
    #[inline(always)]
    fn rest(self, rows: Range<usize>, to: &mut [[u8; ROW_BYTES]; PAIR]) {
        let bytes = 2 * self.cols;
        for (r, to) in rows.zip(to) {
            let rest = &self.w[r * bytes..][bytes / ROW_BYTES * ROW_BYTES..bytes];
            to[..rest.len()].copy_from_slice(rest);
        }
    }

    /// Returns one or two spans that cover these steps; `rest` holds the last step if it is
    /// incomplete.
    #[inline(always)]
    fn spans(
        self,
        at: &TileRange,
        steps: Range<usize>,
        rest: &'a [[u8; ROW_BYTES]; PAIR],
    ) -> ([ColumnSpan<'a>; 2], usize) {
        let shape = TileShape {
            rows: at.rows.len(),
            lanes: self.lanes,
            wide: at.tokens.len() > TILE,
        };
        let whole = steps.start..steps.end.min(self.cols / STEP);
        let span = |rows: &'a [u8], stride: usize, steps: Range<usize>| {
            let tile = |t: usize| {
                let first = t * self.steps() * ROW_BYTES + steps.start * shape.lane_bytes();
                self.x.get(first..).unwrap_or_default()
            };
            let tiles = [tile(at.tokens.start), tile(at.tokens.start + TILE)];
            let strides = Strides::rows(stride);
            shape.span(rows, strides, tiles, shape.lane_bytes(), steps.len())
        };
        let of_rest = || span(rest.as_flattened(), ROW_BYTES, whole.end..steps.end);
        if whole.is_empty() {
            return ([of_rest(); 2], 1);
        }
        let rows = &self.w[2 * at.rows.start * self.cols + steps.start * ROW_BYTES..];
        let of_whole = span(rows, 2 * self.cols, whole.clone());
        if whole.end == steps.end {
            ([of_whole; 2], 1)
        } else {
            ([of_whole, of_rest()], 2)
        }
    }
}

struct FloatTiles;

impl ProofKernel<Amx> for FloatTiles {
    #[inline(always)]
    fn run(s: Amx, mut args: Args<'_>) {
        let &MatmulShape {
            rows, cols, write, ..
        } = args.matmul();
        let range = args.range();
        let mut y = TileOutput {
            y: args.open(AT.y),
            first: range.start,
            rows,
        };
        let m = Operands {
            w: args.bytes(AT.w),
            x: args.bytes(COUNT),
            cols,
            lanes: if args.tokens() == 1 { 1 } else { TILE },
        };
        // A single pair of tiles stays in cache and is processed along all columns.
        let single_pass = args.active_rows() <= PAIR;
        let span_steps = if single_pass {
            m.steps()
        } else {
            STEPS.min(m.steps())
        };
        let block = (ACTIVATIONS_BYTES / (span_steps * BLOCK_BYTES * 2)).max(1) * PAIR;
        let mut rest = [[0; ROW_BYTES]; PAIR];
        for first in (0..args.active_rows()).step_by(block) {
            let tokens = first..args.active_rows().min(first + block);
            for step in (0..m.steps()).step_by(span_steps) {
                let steps = step..m.steps().min(step + span_steps);
                for r in range.clone().step_by(PAIR) {
                    let rows = r..range.end.min(r + PAIR);
                    if steps.end * STEP > cols {
                        m.rest(rows.clone(), &mut rest);
                    }
                    for t in tokens.clone().step_by(PAIR) {
                        let at = TileRange {
                            rows: rows.clone(),
                            tokens: t..tokens.end.min(t + PAIR),
                        };
                        let (spans, n) = m.spans(&at, steps.clone(), &rest);
                        let mut sums = [SumTile::ZERO; 4];
                        if write == Write::Add || step > 0 {
                            y.load(s, &at, &mut sums);
                        }
                        s.bf16(&spans[..n], &mut sums);
                        y.store(s, &at, &mut sums);
                    }
                }
            }
        }
    }
}

/// The output, `[tokens, rows]`, loaded into and stored from tiles of sums.
struct TileOutput<'a> {
    y: Out<'a, f32>,
    first: usize,
    rows: usize,
}

impl TileOutput<'_> {
    /// Results of a token and tile `tile` of these rows.
    #[inline(always)]
    fn row(&mut self, rows: &Range<usize>, tile: usize, t: usize) -> &mut [f32] {
        let first = (rows.start + tile * TILE).min(rows.end);
        let count = (rows.end - first).min(TILE);
        &mut self.y.columns(t, self.rows, 1)[first - self.first..][..count]
    }

    #[inline(always)]
    fn load(&mut self, s: Amx, at: &TileRange, sums: &mut [SumTile; 4]) {
        for (i, block) in sums.iter_mut().enumerate() {
            for (t, to) in at.tokens.clone().skip(i % 2 * TILE).zip(&mut block.0) {
                let from = self.row(&at.rows, i / 2, t);
                to[..from.len()].copy_from_slice(from);
            }
            s.transpose(block);
        }
    }

    #[inline(always)]
    fn store(&mut self, s: Amx, at: &TileRange, sums: &mut [SumTile; 4]) {
        for (i, block) in sums.iter_mut().enumerate() {
            if at.tokens.len() > i % 2 * TILE && at.rows.len() > i / 2 * TILE {
                s.transpose(block);
                for (t, from) in at.tokens.clone().skip(i % 2 * TILE).zip(&block.0) {
                    let to = self.row(&at.rows, i / 2, t);
                    to.copy_from_slice(&from[..to.len()]);
                }
            }
        }
    }
}

/// Returns the kernel of a matrix product, if its weights are BF16 and the level has tiles.
pub(crate) fn link(request: &Request<'_>, matmul: MatmulShape) -> Option<Launch> {
    if request.variant != Some(DType::Bf16) {
        return None;
    }
    let entry = request.isa.tiles::<FloatTiles>()?;
    Some(Launch {
        quantize: Some(bf16_shape(matmul, ActivationFormat::Bf16)),
        ..request.launch_entry(entry, Split::Units(matmul.rows), matmul.tokens)
    })
}
