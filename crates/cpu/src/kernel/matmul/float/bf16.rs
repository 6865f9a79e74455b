//! Matrix products of BF16 weights with AVX-512 BF16. Activations are rounded to bf16.
//!
//! Weights are used in place. A sum runs along [`SPAN`] columns in the lanes of a vector, and the
//! sums of spans are added in order, whatever the number of tokens.

use crate::descriptors::{MatmulShape, Write};
use crate::kernel::matmul::output::MatmulOutput;
use crate::kernel::matmul::row_groups::{Next, column_spans, groups};
use crate::kernel::{Launch, Request};
use crate::memory::Args;
use crate::simd::avx512::Avx512;
use crate::simd::bf16::Bf16;
use crate::simd::math::to_bf16;
use crate::simd::{ProofKernel, Task};
use crate::work::Split;
use std::ops::Range;
use tabla_core::dtype::DType;
use tabla_core::op::operands::gemm::{AT, COUNT};

/// Columns of a vector, and their bytes.
const STEP: usize = 32;
const STEP_BYTES: usize = 2 * STEP;
type Columns = [u8; STEP_BYTES];

/// Columns after which the lanes of a sum are added up. These columns of a tile's rows and tokens
/// stay in the L1 cache.
const SPAN: usize = 2048;

/// Sizes of groups of rows and of tokens. The sums of the largest of both, and its tokens, are in
/// registers.
const ROW_GROUP_SIZES: [usize; 2] = [4, 1];
const TOKEN_GROUP_SIZES: [usize; 4] = [6, 4, 2, 1];

/// Rows and tokens whose columns of a span stay in the L2 cache while they are multiplied.
const PANEL: usize = 64;
const BLOCK: usize = 96;

/// Maximum number of tokens for which rows are read in the order of memory, all spans of a group of
/// rows before the next one.
const IN_ORDER_MAX: usize = 32;

struct Bf16Matmul;

impl ProofKernel<Bf16> for Bf16Matmul {
    #[inline(always)]
    fn run(s: Bf16, mut args: Args<'_>) {
        let matmul @ &MatmulShape { cols, write, .. } = args.matmul();
        let mut sums = MatmulOutput::open(&mut args, matmul);
        let (live, range) = (args.active_rows(), args.range());
        let x = args.f32s(AT.x);
        let mut scratch = args.open::<u8>(COUNT);
        let scratch = scratch.whole();
        let in_order = live <= IN_ORDER_MAX;
        let mut tile = |operands: Operands<'_>, rows, tokens, columns: Range<usize>| {
            sums.add = write == Write::Add || columns.start > 0;
            let at = TileAt {
                rows,
                tokens,
                columns,
                in_order,
            };
            s.outlined(Tile(operands, at, &mut sums));
        };
        for first in (0..live).step_by(BLOCK) {
            let block = first..live.min(first + BLOCK);
            let operands = Operands {
                w: args.bytes(AT.w),
                x: round(&x[first * cols..block.end * cols], cols, scratch),
                first,
                cols,
            };
            if in_order {
                for rows in groups(range.clone(), &ROW_GROUP_SIZES) {
                    for tokens in groups(block.clone(), &TOKEN_GROUP_SIZES) {
                        for columns in column_spans(cols, SPAN) {
                            tile(operands, rows.clone(), tokens.clone(), columns);
                        }
                    }
                }
                continue;
            }
            for columns in column_spans(cols, SPAN) {
                for panel in range.clone().step_by(PANEL) {
                    let panel = panel..range.end.min(panel + PANEL);
                    for tokens in groups(block.clone(), &TOKEN_GROUP_SIZES) {
                        for rows in groups(panel.clone(), &ROW_GROUP_SIZES) {
                            tile(operands, rows, tokens.clone(), columns.clone());
                        }
                    }
                }
            }
        }
    }
}

/// Rounds activations to bf16, row by row, each padded with zeros to whole vectors.
#[inline(always)]
fn round<'a>(x: &[f32], cols: usize, to: &'a mut [u8]) -> &'a [Columns] {
    let to = to.as_chunks_mut::<STEP_BYTES>().0;
    for (x, to) in x.chunks(cols).zip(to.chunks_mut(cols.div_ceil(STEP))) {
        for (x, to) in x.chunks(STEP).zip(to) {
            to.fill(0);
            for (x, to) in x.iter().zip(to.as_chunks_mut().0) {
                let [_, _, high @ ..] = to_bf16(*x).to_le_bytes();
                *to = high;
            }
        }
    }
    to
}

/// Operands of a product.
#[derive(Clone, Copy)]
struct Operands<'a> {
    w: &'a [u8],
    /// Rounded activations of the tokens from `first` on.
    x: &'a [Columns],
    first: usize,
    cols: usize,
}

/// Rows, tokens and columns of a tile.
struct TileAt {
    rows: Range<usize>,
    tokens: Range<usize>,
    columns: Range<usize>,
    /// Whether rows are read in the order of memory, so that the next ones are prefetched.
    in_order: bool,
}

/// Computes the products of a tile.
struct Tile<'a, 'b, 'c>(Operands<'a>, TileAt, &'c mut MatmulOutput<'b>);

impl Task<Bf16> for Tile<'_, '_, '_> {
    #[inline(always)]
    fn run(self, s: Bf16) {
        let Self(operands, at, sums) = self;
        macro_rules! tile {
            ($rows:literal, $tokens:literal) => {
                sums.put(
                    at.rows.start,
                    at.tokens.start,
                    operands.products::<$rows, $tokens>(s, &at),
                )
            };
        }
        match (at.rows.len(), at.tokens.len()) {
            (4, 6) => tile!(4, 6),
            (4, 4) => tile!(4, 4),
            (4, 2) => tile!(4, 2),
            (4, _) => tile!(4, 1),
            (_, 6) => tile!(1, 6),
            (_, 4) => tile!(1, 4),
            (_, 2) => tile!(1, 2),
            _ => tile!(1, 1),
        }
    }
}

impl Operands<'_> {
    #[inline(always)]
    fn products<const R: usize, const T: usize>(self, s: Bf16, at: &TileAt) -> [[f32; T]; R] {
        let Self { w, x, cols, .. } = self;
        let (first, steps) = (at.columns.start, at.columns.len() / STEP);
        let row = |r: usize| &w[2 * (r * cols + first)..][..2 * at.columns.len()];
        let rows: [&[u8]; R] = std::array::from_fn(|i| row(at.rows.start + i));
        let token = |t: usize| &x[(t - self.first) * cols.div_ceil(STEP) + first / STEP..];
        let tokens: [&[Columns]; T] = std::array::from_fn(|i| token(at.tokens.start + i));
        let next = Next {
            rows: (&w[2 * at.rows.start * cols..], 2 * R * (cols + first)),
            read: match at.columns.end < cols {
                true => 2 * SPAN,
                false => 2 * (R * cols - first),
            },
        };
        let mut sums = [[s.zero(); T]; R];
        let whole = rows.map(|row| &row.as_chunks::<STEP_BYTES>().0[..steps]);
        let x = tokens.map(|x| &x[..steps]);
        for i in 0..steps {
            let mut v = [s.load(&x[0][i]); T];
            for t in 1..T {
                v[t] = s.load(&x[t][i]);
            }
            for r in 0..R {
                if at.in_order {
                    next.prefetch(Avx512::from(s), &whole[r][i], i * R + r);
                }
                let w = s.load(&whole[r][i]);
                for t in 0..T {
                    sums[r][t] = s.dot(sums[r][t], w, v[t]);
                }
            }
        }
        if !at.columns.len().is_multiple_of(STEP) {
            for r in 0..R {
                let mut padded = [0; STEP_BYTES];
                let rest = &rows[r][steps * STEP_BYTES..];
                padded[..rest.len()].copy_from_slice(rest);
                for t in 0..T {
                    let x = s.load(&tokens[t][steps]);
                    sums[r][t] = s.dot(sums[r][t], s.load(&padded), x);
                }
            }
        }
        let mut products = [[0.0; T]; R];
        for t in 0..T {
            let mut rows = [s.zero(); 4];
            for r in 0..R {
                rows[r] = sums[r][t];
            }
            let sums = s.sums(rows);
            for r in 0..R {
                products[r][t] = sums[r];
            }
        }
        products
    }
}

/// Returns the kernel of a matrix product, if its weights are BF16 and the processor has the
/// instructions.
pub(crate) fn link(request: &Request<'_>, matmul: MatmulShape) -> Option<Launch> {
    if request.variant != Some(DType::Bf16) {
        return None;
    }
    let entry = request.isa.bf16::<Bf16Matmul>()?;
    let steps = matmul.cols.div_ceil(STEP);
    Some(Launch {
        scratch: BLOCK.min(matmul.tokens as usize) * steps * STEP_BYTES,
        ..request.launch_entry(entry, Split::Units(matmul.rows), matmul.tokens)
    })
}
