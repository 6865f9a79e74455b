//! Products of BF16 and F16 weights by tiles of 16 rows, 16 tokens and 32 columns.
//!
//! Weights are read row by row as the file has them. Activations are rounded to bf16 beside BF16;
//! beside F16 both are two bf16 that add up to them, of whose four products the smallest is left
//! out: what is lost of a term is about its 2^-16th. Every sum is one chain of products along the
//! columns, in an order that depends on nothing but their number.

use super::product::Sizes;
use super::quantise::Shape;
use super::{Launch, Request};
use crate::dtype::DType;
use crate::exec::cpu::memory::{Args, Out};
use crate::exec::cpu::simd::amx::{self, Amx, Block, ROW_BYTES, Stretch, TILE, TileKernel};
use crate::exec::cpu::step::Split;
use std::marker::PhantomData;
use std::ops::Range;

/// Columns of a step.
const STEP: usize = ROW_BYTES / 2;

/// Rows of a panel: two tiles.
const PANEL: usize = 2 * TILE;

/// Steps of a span: where weights are split, the columns whose kinds of products take turns.
const SPAN: usize = 8;

/// Steps after which sums rest in the output, and bytes of activations that a panel passes by:
/// both stay in a core's second-level cache.
const STEPS: usize = 8 * SPAN;
const ACTIVATIONS_BYTES: usize = 1 << 20;

/// Brings activations into the order that tiles take, in so many bf16 each: operand 0 into 1.
///
/// `[tokens / 16][step][part][columns / 2][16][2]`, and `[step][part][columns]` for one token.
pub(in crate::exec::cpu) struct Arrange<const PARTS: usize>;

impl<const PARTS: usize> TileKernel for Arrange<PARTS> {
    #[inline(always)]
    fn run(s: Amx, mut args: Args<'_>) {
        let shape: Shape = args.params();
        let cols = shape.cols as usize;
        let x = args.f32s(0);
        let split = |t: usize, step: usize| {
            let row = &x[t * cols..][..cols];
            let mut padded = [0.0; STEP];
            let numbers = row[step * STEP..].first_chunk().unwrap_or_else(|| {
                let rest = &row[step * STEP..];
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            });
            s.split_f32::<PARTS>(numbers)
        };
        let mut out = args.open::<u8>(1);
        for unit in args.units() {
            let tile = out.unit(unit, shape.tile_bytes());
            let first = unit * shape.tile as usize;
            if shape.tile == 1 {
                for (step, bytes) in tile.chunks_exact_mut(PARTS * ROW_BYTES).enumerate() {
                    bytes.copy_from_slice(split(first, step).as_flattened());
                }
                continue;
            }
            let tokens = first..args.live().min(first + TILE);
            for (step, bytes) in tile.chunks_exact_mut(PARTS * BLOCK_BYTES).enumerate() {
                let mut blocks = [Block::ZERO; PARTS];
                for (i, t) in tokens.clone().enumerate() {
                    for (block, part) in blocks.iter_mut().zip(split(t, step)) {
                        bytemuck::bytes_of_mut(&mut block.0[i]).copy_from_slice(&part);
                    }
                }
                for (block, bytes) in blocks.iter_mut().zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
                    s.transpose(block);
                    bytes.copy_from_slice(bytemuck::bytes_of(&block.0));
                }
            }
        }
    }
}

/// Bytes of a tile of tokens in a step.
const BLOCK_BYTES: usize = TILE * ROW_BYTES;

/// A storage type whose products go by tiles.
trait Weight {
    /// How many bf16 an activation is.
    const PARTS: usize;
    /// Bytes of scratch.
    const SCRATCH: usize;
    /// Steps of a panel that are made at once where it meets few tokens.
    const NEAR: usize;

    /// What is to be multiplied of a panel.
    fn panel(s: Amx, rows: Rows<'_>, steps: Range<usize>, scratch: &mut [u8]);

    /// Its stretches beside these tokens, the first `n` of the array.
    fn stretches<'a>(
        rows: Rows<'a>,
        steps: Range<usize>,
        scratch: &'a [u8],
        tokens: Tokens<'a>,
    ) -> ([Stretch<'a>; STRETCHES], usize);
}

/// Stretches of a panel at most.
const STRETCHES: usize = 3 * STEPS / SPAN;

/// The rows of a panel.
#[derive(Clone, Copy)]
struct Rows<'a> {
    /// From the first row on.
    bytes: &'a [u8],
    /// Columns of a row, and bytes from one to the next.
    cols: usize,
    count: usize,
}

impl<'a> Rows<'a> {
    /// The columns of a step, zeros behind the last: then they are in `padded`.
    #[inline(always)]
    fn step<'b>(self, r: usize, step: usize, padded: &'b mut [u8; ROW_BYTES]) -> &'b [u8; ROW_BYTES]
    where
        'a: 'b,
    {
        let row = &self.bytes[2 * r * self.cols..][..2 * self.cols];
        let rest = &row[step * ROW_BYTES..];
        rest.first_chunk().unwrap_or_else(|| {
            *padded = [0; ROW_BYTES];
            padded[..rest.len()].copy_from_slice(rest);
            padded
        })
    }
}

/// One or two tiles of tokens beside a panel.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    shape: amx::Shape,
    /// All steps of each.
    tiles: [&'a [u8]; 2],
    parts: usize,
}

impl<'a> Tokens<'a> {
    /// The products of `rows` with a part of the activations of these steps.
    #[inline(always)]
    fn beside(self, rows: (&'a [u8], usize), part: usize, steps: Range<usize>) -> Stretch<'a> {
        let bytes = self.shape.token_bytes();
        let step_bytes = self.parts * bytes;
        let first = steps.start * step_bytes + part * bytes;
        let tiles = self.tiles.map(|tile| tile.get(first..).unwrap_or_default());
        self.shape.stretch(rows, (tiles, step_bytes), steps.len())
    }
}

struct Bf16;

impl Weight for Bf16 {
    const PARTS: usize = 1;
    const SCRATCH: usize = PANEL * ROW_BYTES;
    const NEAR: usize = STEPS;

    /// Copies the columns that are no whole step.
    #[inline(always)]
    fn panel(_: Amx, rows: Rows<'_>, steps: Range<usize>, scratch: &mut [u8]) {
        if steps.end > rows.cols / STEP {
            for (r, to) in scratch
                .chunks_exact_mut(ROW_BYTES)
                .take(rows.count)
                .enumerate()
            {
                to.copy_from_slice(rows.step(r, steps.end - 1, &mut [0; ROW_BYTES]));
            }
        }
    }

    #[inline(always)]
    fn stretches<'a>(
        rows: Rows<'a>,
        steps: Range<usize>,
        scratch: &'a [u8],
        tokens: Tokens<'a>,
    ) -> ([Stretch<'a>; STRETCHES], usize) {
        let whole = steps.start..steps.end.min(rows.cols / STEP);
        let rest = whole.end..steps.end;
        let of_whole = (
            rows.bytes
                .get(steps.start * ROW_BYTES..)
                .unwrap_or_default(),
            2 * rows.cols,
        );
        match (whole.is_empty(), rest.is_empty()) {
            (true, _) => ([tokens.beside((scratch, ROW_BYTES), 0, rest); STRETCHES], 1),
            (false, true) => ([tokens.beside(of_whole, 0, whole); STRETCHES], 1),
            (false, false) => {
                let mut both = [tokens.beside(of_whole, 0, whole); STRETCHES];
                both[1] = tokens.beside((scratch, ROW_BYTES), 0, rest);
                (both, 2)
            }
        }
    }
}

struct F16;

/// Bytes of a panel's part in a span.
const SPAN_BYTES: usize = PANEL * SPAN * ROW_BYTES;

impl Weight for F16 {
    const PARTS: usize = 2;
    const SCRATCH: usize = STEPS / SPAN * 2 * SPAN_BYTES;
    const NEAR: usize = SPAN;

    /// Splits all numbers: `[span][part][row][columns]`.
    #[inline(always)]
    fn panel(s: Amx, rows: Rows<'_>, steps: Range<usize>, scratch: &mut [u8]) {
        let spans = scratch.chunks_exact_mut(2 * SPAN_BYTES);
        let mut padded = [0; ROW_BYTES];
        for (span, first) in spans.zip(steps.clone().step_by(SPAN)) {
            let (high, low) = span.as_chunks_mut().0.split_at_mut(PANEL * SPAN);
            for r in 0..rows.count {
                for step in first..steps.end.min(first + SPAN) {
                    let at = r * SPAN + step - first;
                    let parts = [&mut high[at], &mut low[at]];
                    s.split_f16(rows.step(r, step, &mut padded), parts);
                }
            }
        }
    }

    #[inline(always)]
    fn stretches<'a>(
        _: Rows<'a>,
        steps: Range<usize>,
        scratch: &'a [u8],
        tokens: Tokens<'a>,
    ) -> ([Stretch<'a>; STRETCHES], usize) {
        let part = |span: usize, part: usize| {
            (
                &scratch[(2 * span + part) * SPAN_BYTES..][..SPAN_BYTES],
                SPAN * ROW_BYTES,
            )
        };
        let mut all = [tokens.beside(part(0, 0), 0, steps.start..steps.start + 1); STRETCHES];
        let mut n = 0;
        for (span, first) in steps.clone().step_by(SPAN).enumerate() {
            let of = first..steps.end.min(first + SPAN);
            for (w, x) in [(1, 0), (0, 0), (0, 1)] {
                all[n] = tokens.beside(part(span, w), x, of.clone());
                n += 1;
            }
        }
        (all, n)
    }
}

struct Product<W, N, const ADD: bool>(PhantomData<(W, N)>);

impl<W: Weight, N: Sizes, const ADD: bool> TileKernel for Product<W, N, ADD> {
    #[inline(always)]
    fn run(s: Amx, mut args: Args<'_>) {
        let [rows, cols] = N::sizes(&args);
        let range = args.range();
        let mut y = Sums {
            y: args.open(2),
            first: range.start,
            rows,
        };
        let mut scratch = args.open::<u8>(4);
        let scratch = scratch.whole();
        let (w, x) = (args.bytes(0), args.bytes(5));
        let lanes = if args.tokens() == 1 { 1 } else { TILE };
        let all_steps = cols.div_ceil(STEP);
        let token_bytes = all_steps * W::PARTS * ROW_BYTES;
        let panel = |r: usize| Rows {
            bytes: &w[2 * r * cols..],
            cols,
            count: PANEL.min(range.end - r),
        };
        let beside = |r: usize, tokens: Range<usize>| {
            let tile = |t: usize| x.get(t * token_bytes..).unwrap_or_default();
            Tokens {
                shape: amx::Shape {
                    rows: PANEL.min(range.end - r),
                    lanes,
                    wide: tokens.len() > TILE,
                },
                tiles: [tile(tokens.start), tile(tokens.start + TILE)],
                parts: W::PARTS,
            }
        };
        if args.live() <= PANEL {
            for r in range.clone().step_by(PANEL) {
                let (panel, tokens) = (panel(r), beside(r, 0..args.live()));
                let at = (r..r + panel.count, 0..args.live());
                let mut sums = [Block::ZERO; 4];
                if ADD {
                    y.load(s, at.clone(), &mut sums);
                }
                for step in (0..all_steps).step_by(W::NEAR) {
                    let steps = step..all_steps.min(step + W::NEAR);
                    W::panel(s, panel, steps.clone(), scratch);
                    let (stretches, n) = W::stretches(panel, steps, scratch, tokens);
                    s.bf16(tokens.shape, &stretches[..n], &mut sums);
                }
                y.store(s, at, &mut sums);
            }
            return;
        }
        let block = STEPS.min(all_steps) * W::PARTS * ROW_BYTES * PANEL;
        let block = (ACTIVATIONS_BYTES / block).max(1) * PANEL;
        for first in (0..args.live()).step_by(block) {
            let tokens = first..args.live().min(first + block);
            for step in (0..all_steps).step_by(STEPS) {
                let steps = step..all_steps.min(step + STEPS);
                for r in range.clone().step_by(PANEL) {
                    let panel = panel(r);
                    W::panel(s, panel, steps.clone(), scratch);
                    for t in tokens.clone().step_by(PANEL) {
                        let some = t..tokens.end.min(t + PANEL);
                        let beside = beside(r, some.clone());
                        let (stretches, n) = W::stretches(panel, steps.clone(), scratch, beside);
                        let at = (r..r + panel.count, some);
                        let mut sums = [Block::ZERO; 4];
                        if ADD || step > 0 {
                            y.load(s, at.clone(), &mut sums);
                        }
                        s.bf16(beside.shape, &stretches[..n], &mut sums);
                        y.store(s, at, &mut sums);
                    }
                }
            }
        }
    }
}

/// The output, `[tokens, rows]`, from and to sums.
struct Sums<'a> {
    y: Out<'a, f32>,
    first: usize,
    rows: usize,
}

impl Sums<'_> {
    /// The numbers of a token and a tile of these rows.
    #[inline(always)]
    fn row(&mut self, rows: &Range<usize>, tile: usize, t: usize) -> &mut [f32] {
        let first = rows.start + tile * TILE;
        let count = rows.end.saturating_sub(first).min(TILE);
        let first = if count == 0 { 0 } else { first - self.first };
        &mut self.y.columns(t, self.rows, 1)[first..][..count]
    }

    #[inline(always)]
    fn load(
        &mut self,
        s: Amx,
        (rows, tokens): (Range<usize>, Range<usize>),
        sums: &mut [Block; 4],
    ) {
        for (i, block) in sums.iter_mut().enumerate() {
            for (t, to) in tokens.clone().skip(i % 2 * TILE).zip(&mut block.0) {
                let from = self.row(&rows, i / 2, t);
                to[..from.len()].copy_from_slice(from);
            }
            s.transpose(block);
        }
    }

    #[inline(always)]
    fn store(
        &mut self,
        s: Amx,
        (rows, tokens): (Range<usize>, Range<usize>),
        sums: &mut [Block; 4],
    ) {
        for (i, block) in sums.iter_mut().enumerate() {
            if tokens.len() > i % 2 * TILE && rows.len() > i / 2 * TILE {
                s.transpose(block);
                for (t, from) in tokens.clone().skip(i % 2 * TILE).zip(&block.0) {
                    let to = self.row(&rows, i / 2, t);
                    to.copy_from_slice(&from[..to.len()]);
                }
            }
        }
    }
}

/// The kernel of a product of this shape, `[tokens, rows, cols]`, if its weights go by tiles here.
pub(super) fn link<N: Sizes, const ADD: bool>(
    request: &Request<'_>,
    [tokens, rows, cols]: [u32; 3],
) -> Option<Launch> {
    let (entry, scratch, parts) = match request.variant {
        Some(DType::Bf16) => (
            request.isa.tiles::<Product<Bf16, N, ADD>>()?,
            Bf16::SCRATCH,
            Bf16::PARTS,
        ),
        Some(DType::F16) => (
            request.isa.tiles::<Product<F16, N, ADD>>()?,
            F16::SCRATCH,
            F16::PARTS,
        ),
        _ => return None,
    };
    let shape = Shape {
        tokens,
        cols,
        tile: if tokens == 1 { 1 } else { TILE as u32 },
        offset: 0,
        halves: 0,
        bf16: parts as u32,
    };
    Some(Launch {
        scratch,
        quantise: Some(shape),
        ..request.of(entry, Split::Units(rows as usize), tokens)
    })
}
